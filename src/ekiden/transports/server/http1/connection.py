"""HTTP/1.1 for one application: a uvicorn protocol class that knows what it serves.

uvicorn listens, accepts, handles signals and shuts down. What comes in on a connection is read here,
because a protocol that serves any ASGI application spends more on one request than the rest of an MCP
server does. A request is handed over whole: the application is not started before the body is there, and
a request whose answer lies ready is answered without starting anything.

The ASGI events stay the language between a connection and the application, so that there is one
application, here and where it is mounted.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import httptools

from ekiden.errors import InvalidRequest
from ekiden.transports.server.eager import begin
from ekiden.transports.server.http1.exchange import CLOSE, STATUS_LINES, Exchange
from ekiden.transports.server.http1.shared import Refused, Shared
from ekiden.transports.server.reply import Incoming
from ekiden.wire import jsonrpc
from ekiden.wire.headers import Headers

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

__all__ = ["Connections"]

_log = logging.getLogger("ekiden.http")

_HEAD_BYTES: Final = 64 * 1024
"""Request line and headers. A token of 64 KiB travels in the body, so nothing of ours comes near this."""
_QUEUED: Final = 16
"""Requests that a client may send before it has read the first answer; then it is not read from."""
_LINGER_SECONDS: Final = 1.0
"""How long a client that was refused may go on sending before the connection is cut."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connections(Shared):
    """The connections of one application, as uvicorn asks for them."""

    def __call__(
        self,
        config: "Config",
        server_state: "ServerState",
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> "Connection":
        """A connection, as uvicorn asks for it."""
        loop = _loop or asyncio.get_running_loop()
        return Connection(self, server_state, loop, float(config.timeout_keep_alive))


class Connection(asyncio.Protocol):
    """One client's connection: requests are answered one after the other, in their order."""

    def __init__(
        self,
        all_of_them: Connections,
        state: "ServerState",
        loop: asyncio.AbstractEventLoop,
        keep_alive_seconds: float,
    ) -> None:
        self._all = all_of_them
        self.state = state
        self.loop = loop
        self._application = all_of_them.application
        self._body_limit = all_of_them.limits.body
        self._keep_alive_seconds = keep_alive_seconds
        self._parser: Any = httptools.HttpRequestParser(self)
        self._exchange: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._since = loop.time()
        """When the connection fell silent, or a request began that is not whole yet."""
        self._reading = False
        self._closing = False
        self._lingering = False
        self._expecting = False
        """Whether the client waits for leave to send a body, while another request is answered."""
        self._pairs: list[tuple[bytes, bytes]] = []
        self._size = 0
        self._unread = 0
        """Bytes of a request that the parser keeps to itself: a header that has not ended yet."""
        self._unsent = 0
        self._moved = self._since
        """When the client last took anything of what is `_unsent`."""
        self.writable: asyncio.Future[None] | None = None
        """Done when the client reads again; None while it does."""

    # What uvicorn and the event loop call

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here."""
        self.transport: Any = transport
        self.state.connections.add(self)  # type: ignore[arg-type]  # uvicorn names its own two classes
        self._all.enter(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: nobody wants the answers any more."""
        self.state.connections.discard(self)
        self._all.leave(self)
        self._closing = True
        self._parser = None
        self._waiting.clear()
        self.resume_writing()
        if self._exchange is not None:
            self._exchange.leave()

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        if self.writable is None:
            self.writable = self.loop.create_future()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self.writable is not None:
            self.writable.set_result(None)
            self.writable = None
            if self._waiting:
                self.loop.call_soon(self._go_on)

    def shutdown(self) -> None:
        """The server ends: what runs is answered, and nothing more."""
        self._closing = True
        if self._exchange is None:
            self.transport.close()

    def look(self, now: float) -> None:
        """Close the connection if it is idle, or a request or its answer takes too long on its way."""
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent, self._moved = unsent, now
        elif unsent and now - self._moved > self._all.limits.stall_seconds:
            self.transport.abort()  # To close would wait for the client to take the rest.
        elif self._lingering:
            if now - self._since > _LINGER_SECONDS:
                self.transport.close()
        elif self._reading and not self._is_full():
            if now - self._since > self._all.limits.body_seconds:
                self._refuse(408, "The request took too long to arrive")
        elif unsent or self._waiting or self._exchange is not None:
            pass
        elif now - self._since > self._keep_alive_seconds:
            self._closing = True
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Take what came in."""
        if self._closing and self._exchange is None:
            return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        parser = self._parser
        pairs, size = self._pairs, self._size
        try:
            parser.feed_data(data)
            if pairs is self._pairs and size == self._size and self._reading:
                self._unread += len(data)
                if self._unread > _HEAD_BYTES:
                    self._refuse(431, "The request's headers are too long")
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            refused = error.__context__
            if isinstance(refused, Refused):
                self._refuse(*refused.args)
            else:
                _log.error("A request could not be taken", exc_info=refused)
                self._refuse(500, "Internal error")
        except httptools.HttpParserError:
            self._refuse(400, "Not HTTP/1.1")

    def _decline(self, rest: bytes) -> None:
        """Nobody has to upgrade (Java's client offers it always): read the request as if it had not asked.

        The parser has stopped before the body, so a new one gets the head again, without the offer.
        """
        method: bytes = self._parser.get_method()
        if method == b"CONNECT":  # An upgrade by its method, however often it is read.
            self._refuse(501, "Not implemented: this is no proxy")
            return
        kept = [pair for pair in self._pairs if pair[0] not in (b"upgrade", b"connection")]
        if not self._parser.should_keep_alive():
            kept.append((b"connection", b"close"))
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (
            method,
            self._url,
            self._parser.get_http_version().encode(),
            b"".join(b"%b: %b\r\n" % pair for pair in kept),
        )
        self._parser = httptools.HttpRequestParser(self)
        self._parse(head + rest)

    # What the parser calls

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._pairs = []
        self._trailing = self._expecting = False
        self._unread = 0
        self._body = b""
        self._size = 0
        self._chunks: list[bytes] | None = None
        self._reading = True
        self._since = self.loop.time()

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._url += url
        if len(self._url) > _HEAD_BYTES:
            raise Refused(414, "The request's target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; what comes after the body is none, and nobody asked for it."""
        self._size += len(name) + len(value)
        if self._trailing:
            if self._size > self._body_limit:
                raise Refused(413, f"Body too large: the limit is {self._body_limit} bytes")
            return
        if self._size > _HEAD_BYTES:
            raise Refused(431, "The request's headers are too long")
        self._pairs.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """All that is known before the body; what is refused for it need not be sent at all."""
        if self._parser.should_upgrade():
            return
        self._size = 0
        self._trailing = True
        headers = dict(self._pairs)
        method, path = self._parser.get_method().decode("latin-1"), self._all.path(self._url)
        refusal = self._application.refusal(method, path, "", headers)
        if refusal is not None and refusal[0] != 405 and _has_body(headers):
            raise Refused(*refusal)
        keep_alive = self._parser.should_keep_alive() and self._parser.get_http_version() == "1.1"
        repeating = None if len(headers) == len(self._pairs) else self._pairs
        incoming = Incoming(method, path, headers, refusal, b"", repeating)
        self._next = Exchange(self, incoming, keep_alive)
        if refusal is None and headers.get(b"expect", b"").lower() == b"100-continue":
            self._expecting = True
            self._go_on()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._size += len(body)
        if self._size > self._body_limit:
            raise Refused(413, f"Body too large: the limit is {self._body_limit} bytes")
        if not self._body:
            self._body = body
        elif self._chunks is None:
            self._chunks = [self._body, body]
        else:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._parser.should_upgrade():
            return
        self._reading = False
        if self._closing:
            return
        exchange = self._next
        exchange.incoming.body = self._body if self._chunks is None else b"".join(self._chunks)
        if self._exchange is None and self.writable is None and not self._waiting:
            self._begin(exchange)
            return
        self._waiting.append(exchange)
        if self._is_full():
            self.transport.pause_reading()

    def _is_full(self) -> bool:
        """Whether so much waits to be answered that nothing more is read."""
        return len(self._waiting) >= _QUEUED

    # Answering

    def _begin(self, exchange: "Exchange") -> None:
        self.state.total_requests += 1
        self._exchange = exchange
        self._all.soon(self, exchange)

    def run(self, exchange: "Exchange") -> None:
        """Have the application answer."""
        task = begin(exchange.run(self._application), self.loop, "ekiden exchange")
        if task is not None:
            tasks = self.state.tasks
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def ended(self, exchange: "Exchange") -> None:
        """An exchange is over: on to the next one."""
        self._exchange = None
        self._end(exchange)
        if self._waiting or self._expecting:
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Answer what waits for its turn, as long as the client takes the answers."""
        while self._exchange is None and self.writable is None and not self._closing:
            if self._waiting:
                if len(self._waiting) == _QUEUED:
                    self._since = self.loop.time()
                    self.transport.resume_reading()
                self._begin(self._waiting.popleft())
                continue
            if self._expecting:
                self._expecting = False
                self.transport.write(_CONTINUE)
            break

    def _end(self, exchange: "Exchange") -> None:
        if self._closing or not exchange.keep_alive:
            self._closing = True
            self.transport.close()
        elif not self._reading:
            self._since = self.loop.time()

    def _refuse(self, status: int, reason: str) -> None:
        """Give up on what comes in: say why, unless an answer is under way, and close."""
        was_closing, self._closing = self._closing, True
        self._reading = False
        self._waiting.clear()
        if self._exchange is None and not was_closing:
            body = jsonrpc.error_response(None, InvalidRequest(reason))
            self.write_json(status, body, keep_alive=False)
            self._linger()

    def _linger(self) -> None:
        """Say no more, but take what is still under way: to close now would destroy the answer."""
        self._since = self.loop.time()
        self._lingering = True
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def write_json(self, status: int, body: bytes, *, keep_alive: bool) -> None:
        """Write a whole response."""
        self.transport.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b%b\r\n%b"
            % (
                STATUS_LINES[status],
                len(body),
                self._all.common(self.state),
                b"" if keep_alive else CLOSE,
                body,
            )
        )

    def head(self) -> bytes:
        """The headers that every response has."""
        return self._all.common(self.state)


def _has_body(headers: Headers) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
