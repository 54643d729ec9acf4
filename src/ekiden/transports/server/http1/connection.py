"""HTTP/1.1 for one application: a uvicorn protocol class that knows what it serves.

uvicorn listens, accepts, handles signals and shuts down. What comes in on a connection is read here,
because a protocol that serves any ASGI application spends more on one request than the rest of an MCP
server does. The application is not started before the body is whole.

The ASGI events stay the language between a connection and the application, so that there is one
application, here and where it is mounted.
"""

import asyncio
import functools
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import httptools

from ekiden.errors import HttpRequestRefused, InvalidRequest
from ekiden.transports.server.asgi import StreamableHTTP
from ekiden.transports.server.http1.exchange import Exchange
from ekiden.transports.server.http1.sweeper import Sweeper
from ekiden.transports.server.reply import Incoming
from ekiden.wire import jsonrpc
from ekiden.wire.headers import Headers

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

__all__ = ["Connections"]

_log = logging.getLogger(__name__)

_HEAD_BYTES: Final = 64 * 1024
"""Request line and headers. A token of 64 KiB travels in the body, so nothing of ours comes near this."""
_QUEUED: Final = 16
"""Requests that may wait for their turn; then nothing more is read until one of them is answered."""
_LINGER_SECONDS: Final = 1.0
"""How long a client that was refused may go on sending before the connection is cut."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connections:
    """Makes the connections of one application."""

    def __init__(self, application: StreamableHTTP) -> None:
        self._application = application
        self._sweeper = Sweeper(max(0.05, min(1.0, application.limits.body_seconds / 4)))

    def __call__(
        self,
        config: "Config",
        server_state: "ServerState",
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> "Connection":
        """A connection; the signature is uvicorn's."""
        loop = _loop or asyncio.get_running_loop()
        keep_alive = float(config.timeout_keep_alive)
        return Connection(self._application, self._sweeper, server_state, loop, keep_alive)


class Connection(asyncio.Protocol):
    """One client's connection: requests are answered one after the other, in their order."""

    def __init__(
        self,
        application: StreamableHTTP,
        sweeper: Sweeper,
        state: "ServerState",
        loop: asyncio.AbstractEventLoop,
        keep_alive_seconds: float,
    ) -> None:
        self._application = application
        self._limits = application.limits
        self._sweeper = sweeper
        self.state = state
        self.loop = loop
        self._body_limit = application.limits.body
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
        """Whether the client waits for `100 Continue` while another request is answered."""
        self._pairs: list[tuple[bytes, bytes]] = []
        self._size = 0
        self._unread = 0
        """Bytes that the parser has taken without calling us back: a header that has not ended yet."""
        self._common_list: list[tuple[bytes, bytes]] | None = None
        self._common = b""
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
        self._sweeper.add(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: nothing more is answered."""
        self.state.connections.discard(self)
        self._sweeper.discard(self)
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
        """The server ends: the running request is answered, and no other."""
        self._closing = True
        if self._exchange is None:
            self.transport.close()

    def look(self, now: float) -> None:
        """Close the connection if it is idle, or a request or its answer takes too long on its way."""
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent, self._moved = unsent, now
        elif unsent and now - self._moved > self._limits.stall_seconds:
            self.transport.abort()  # `close` would wait until the client has read the rest.
        elif self._lingering:
            if now - self._since > _LINGER_SECONDS:
                self.transport.close()
        elif self._reading and not self._is_full():
            if now - self._since > self._limits.body_seconds:
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
            if isinstance(refused, HttpRequestRefused):
                self._refuse(refused.status, refused.reason)
            else:
                _log.error("A request could not be taken", exc_info=refused)
                self._refuse(500, "Internal error")
        except httptools.HttpParserError:
            self._refuse(400, "Not HTTP/1.1")

    def _decline(self, rest: bytes) -> None:
        """Read the request as if it had not offered an upgrade, as Java's client always does.

        The parser has stopped before the body, so a new one gets the head again, without the offer.
        """
        method: bytes = self._parser.get_method()
        if method == b"CONNECT":  # An upgrade by its method, however often it is read.
            self._refuse(501, "Not implemented: this is not a proxy")
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
        self.data_received(head + rest)

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
            raise HttpRequestRefused(414, "The request's target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Trailers, which come after the body, are counted and ignored."""
        self._size += len(name) + len(value)
        if self._trailing:
            if self._size > self._body_limit:
                raise HttpRequestRefused(413, f"Body too large: the limit is {self._body_limit} bytes")
            return
        if self._size > _HEAD_BYTES:
            raise HttpRequestRefused(431, "The request's headers are too long")
        self._pairs.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole. A request that is refused for its head is refused before its body is sent."""
        if self._parser.should_upgrade():
            return
        self._size = 0
        self._trailing = True
        headers = dict(self._pairs)
        method, path = self._parser.get_method().decode("latin-1"), _path(self._url)
        refusal = self._application.refusal(method, path, "", headers)
        if refusal is not None and refusal[0] != 405 and _has_body(headers):
            raise HttpRequestRefused(*refusal)
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
            raise HttpRequestRefused(413, f"Body too large: the limit is {self._body_limit} bytes")
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

    def _begin(self, exchange: Exchange) -> None:
        """Have the application answer, in a task of its own."""
        self._exchange = exchange
        state = self.state
        state.total_requests += 1
        answering = self._application.exchange(
            exchange.incoming, exchange.receive, exchange.send, exchange.respond
        )
        # Not by the loop's task factory: one that starts tasks at once would do so inside the parser.
        task = asyncio.Task(answering, loop=self.loop, name="ekiden exchange")
        state.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """The application has answered: on to the next request."""
        self.state.tasks.discard(task)
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        exchange.end(None if task.cancelled() else task.exception())
        if self._closing or not exchange.keep_alive:
            self._closing = True
            self.transport.close()
        elif not self._reading:
            self._since = self.loop.time()
        if self._waiting or self._expecting:
            self._go_on()

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

    def _refuse(self, status: int, reason: str) -> None:
        """Refuse what comes in and close; the reason is sent unless another response is under way."""
        was_closing, self._closing = self._closing, True
        self._reading = False
        self._waiting.clear()
        if self._exchange is None and not was_closing:
            body = jsonrpc.error_response(None, InvalidRequest(reason))
            Exchange(self, Incoming("", "", {}, None, b""), keep_alive=False).respond(status, body)
            self._linger()

    def _linger(self) -> None:
        """Send nothing more, but go on reading for a while: to close now could destroy the response."""
        self._since = self.loop.time()
        self._lingering = True
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def common_headers(self) -> bytes:
        """The headers that every response has. uvicorn makes a new list of them for every second's date."""
        if self.state.default_headers is not self._common_list:
            self._common_list = self.state.default_headers
            self._common = b"".join(b"%b: %b\r\n" % header for header in self._common_list)
        return self._common


@functools.lru_cache(maxsize=16)
def _path(url: bytes) -> str:
    """The path of a request's target."""
    try:
        return unquote((httptools.parse_url(url).path or b"/").decode("latin-1"))
    except httptools.HttpParserInvalidURLError:
        raise HttpRequestRefused(400, "The request's target is not a URL") from None


def _has_body(headers: Headers) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
