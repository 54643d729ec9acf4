"""HTTP/1.1 for one application: a uvicorn protocol class that knows what it serves.

uvicorn listens, accepts, handles signals and shuts down. What comes in on a connection is read here,
because a protocol that serves any ASGI application spends more on one request than the rest of an MCP
server does. The application is not started before the body is whole.

The ASGI events stay the language between a connection and the application, so that there is one
application, here and where it is mounted.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ekiden.errors import InvalidRequest
from ekiden.transports.server.asgi import StreamableHTTP
from ekiden.transports.server.budget import SMALL
from ekiden.transports.server.http1.admission import Admissions, is_final
from ekiden.transports.server.http1.exchange import Exchange, method_and_name
from ekiden.transports.server.http1.heads import has_body, read_target
from ekiden.transports.server.http1.reading import SHORT_HEAD, STOPS, RequestReader
from ekiden.transports.server.http1.sweeper import Sweeper
from ekiden.transports.server.http1.unread import Unread
from ekiden.transports.server.http1.writing import ResponseWriter
from ekiden.transports.server.proxies import network_of
from ekiden.transports.server.shares import client_of
from ekiden.wire import jsonrpc
from ekiden.wire.incoming import ROUTED, Incoming, Refusal

if TYPE_CHECKING:
    from uvicorn.server import ServerState

__all__ = ["Connection"]

_log = logging.getLogger(__name__)

_QUEUED: Final = 16
"""Requests that may wait for their turn; then nothing more is read until one of them is answered. Behind a
stream it is one."""
_SLICE: Final = 8 * 1024
"""Bytes that are read at once where a request begins. One of 30 bytes takes two KB until it is answered, so
thousands of them must not be read out of one piece."""
_LINGER_SECONDS: Final = 1.0
"""How long a client that was refused may go on sending before the connection is cut."""
_HALF_CLOSED_SECONDS: Final = 1.0
"""How long answers may take when the client sends no more. It waits for them, or it is gone."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(RequestReader, ResponseWriter, asyncio.Protocol):
    """One client's connection: requests are answered one after the other, in their order."""

    exchanges: type[Exchange] = Exchange
    """What its requests are made of."""

    def __init__(
        self,
        application: StreamableHTTP,
        sweeper: Sweeper,
        unread: Unread,
        state: "ServerState",
        loop: asyncio.AbstractEventLoop,
        keep_alive_seconds: float,
    ) -> None:
        RequestReader.__init__(self, application.limits.body, application.bodies, loop)
        ResponseWriter.__init__(self, unread, state, loop)
        self._application = application
        self._limits = application.limits
        self._sweeper = sweeper
        self._keep_alive_seconds = keep_alive_seconds
        self._exchange: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._full = False
        """Whether reading has stopped because so much waits."""
        self._half_closed = False
        self._closing = False
        self._lingering = False
        self._expecting = False
        """Whether the client waits for `100 Continue` while another request is answered."""
        self._next: Exchange | None = None
        """The request that is being read, when its head is whole."""
        self._gated: Admissions | None = None
        """Shows requests to the gate before their bodies are read; None if it has decided by their heads."""

    # What uvicorn and the event loop call

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here."""
        self.transport = transport
        peer: Any = transport.get_extra_info("peername")
        self._address: str | None = peer[0] if peer.__class__ is tuple else None  # A path, of a worker.
        if peer is None:  # It is gone already. What it has sent must not count as that of a worker.
            self._closing = True
            self.transport.abort()
        self.network = None if self._address is None else network_of(self._address)
        gate = self._application.gate
        if self._address is None or gate.doorkeeper is not None or gate.proxies is not None:
            self._gated = Admissions(self, gate, self._address)
        self.state.connections.add(self)  # type: ignore[arg-type]  # uvicorn names its own two classes
        self._sweeper.add(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: nothing more is answered."""
        self.state.connections.discard(self)
        self._sweeper.discard(self)
        self._closing = True
        self.stop_reading()
        self._next = None
        for exchange in self._waiting:
            self._budget.give_back(exchange.holder, exchange.held)
        self._waiting.clear()
        self.resume_writing()
        if self._exchange is not None:
            self._exchange.leave()

    def eof_received(self) -> bool:
        """The client sends no more. Whether the connection stays open, for answers that are on their way."""
        is_waiting = self._exchange is not None and not self._exchange.is_streaming
        # With TLS a connection cannot be half open, and asyncio warns of the attempt.
        if not is_waiting or self._lingering or self.transport.get_extra_info("sslcontext") is not None:
            return False
        self._half_closed = True
        self.loop.call_later(_HALF_CLOSED_SECONDS, self.transport.close)
        return True

    def _caught_up(self) -> None:
        if self._waiting:
            self.loop.call_soon(self._go_on)

    def shutdown(self) -> None:
        """The server ends: the running request is answered, and no other."""
        self._closing = True
        if self._exchange is None:
            self.transport.close()

    @property
    def answers(self) -> str | None:
        """The request that is being answered, in words; None if there is none, or only a stream of 2025."""
        if self._exchange is None or self._exchange.incoming.method != "POST":
            return None
        return method_and_name(self._exchange.incoming) or "a request"

    def look(self, now: float) -> None:
        """Close the connection if it is idle, or a request or its answer takes too long on its way."""
        if self._seconds_stalled(now) > self._limits.stall_seconds:
            self.transport.abort()  # `close` would wait until the client has read the rest.
        elif self._lingering:
            if now - self._since > _LINGER_SECONDS:
                self.transport.close()
        elif self._reading and not self._full:
            if now - self._since > self._limits.body_seconds:
                self._refuse(408, "The request took too long to arrive")
        elif self._unsent or self._waiting or self._exchange is not None:
            pass
        elif now - self._since > self._keep_alive_seconds:
            self._closing = True
            self.transport.close()

    @property
    def waits_since(self) -> float | None:
        """Since when it waits for its client, by the loop's clock; None while a request is answered."""
        is_busy = self._exchange is not None or self._waiting or (self._gated and self._gated.undecided)
        return None if is_busy else self._moved if self._unsent else self._since

    def make_room(self) -> None:
        """Close the connection at once: others need its place."""
        self._closing = True
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came in."""
        if self._refused or (self._closing and self._exchange is None):
            return
        if self._unsliced:
            self._keep(data)  # Some transports deliver once more after they were paused.
        elif len(data) <= _SLICE or self._reading:
            self._read(data)
        else:
            self._read_slices(data)

    def _read(self, data: bytes) -> None:
        headers, size = self._headers, self._size
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except STOPS as error:
            self._read_on(data, error)
        if self._reading:
            # Bytes that have neither ended the head nor brought any of the body are counted.
            self._count_unread(len(data) if headers is self._headers and size == self._size else 0)
        else:
            self._fed = 0

    def _read_slices(self, data: bytes) -> None:
        """Read until so much waits that the rest is kept for later."""
        for start in range(0, len(data), _SLICE):
            if self._must_wait():
                self._keep(data[start:])
                self.set_reading()
                return
            if self._lacks(len(data) - start):
                self._read(data[start:])
                return
            self._read(data[start : start + _SLICE])
            if self._refused or self._parser is None:
                return

    def _lacks(self, size: int) -> bool:
        """Whether so many bytes all belong to the body that is being read."""
        if not self._reading or self._next is None:
            return False
        length = self._next.incoming.headers.get(b"content-length", b"")
        return length.isdigit() and int(length) - self._size >= size

    def _read_kept(self) -> None:
        """Read what was kept for later."""
        data = self._take_kept()
        if self._parser is None or self._closing:
            return
        if not self._refused:
            self._read_slices(data)
        self.set_reading()

    # What the parser calls

    def on_headers_complete(self) -> None:
        """The head is whole. A request that is refused for its head is refused before its body is sent."""
        if self._parser.should_upgrade():
            return
        headers, self._headers, self._in_head = self._headers, {}, False
        repeating = self._check_head(headers) if self._repeated or self._fed > SHORT_HEAD else None
        if b"transfer-encoding" in headers and headers[b"transfer-encoding"].strip().lower() != b"chunked":
            raise self._stop(501, "Not implemented: the only transfer coding is chunked")
        keep_alive = self._keeps_alive(headers)
        method = self._parser.get_method().decode("latin-1")
        path, authority = read_target(self._url)
        if path is None:
            raise self._stop(400, "The request's target is not a URL")
        if authority is not None and authority != headers.get(b"host", b"").strip().lower():
            raise self._stop(421, "The request's target names another host than its Host header")
        refusal = self._application.gate.refusal(method, path, "", headers)
        incoming = Incoming(
            method, path, headers, refusal, b"", repeating, self._address, self._limits.values
        )
        if self._gated is not None:
            refusal = self._gated.look(incoming, self._url.partition(b"?")[2])
        if refusal is ROUTED:
            incoming.query = self._url.partition(b"?")[2]
        if refusal is not None and is_final(refusal) and has_body(headers):
            raise self._stop(*self._application.gate.readable(refusal, headers))
        self._next = self.exchanges(self, incoming, keep_alive)
        if b"expect" in headers and (refusal is None or refusal is ROUTED):
            self._welcome_body(incoming)

    def _welcome_body(self, incoming: Incoming) -> None:
        """Tell a client that waits for it to send the body."""
        if incoming.headers.get(b"expect", b"").lower() == b"100-continue":
            self._expecting = True
            self._go_on()

    def decided(self, incoming: Incoming, refusal: Refusal | None) -> None:
        """The gate has decided: go on reading. If the request is refused, its body is not read."""
        if self._parser is None:
            return
        if self._reading and self._next is not None and incoming is self._next.incoming:
            if refusal is not None and is_final(refusal):
                self._refuse(*self._application.gate.readable(refusal, incoming.headers))
            else:
                self._welcome_body(incoming)
        self.set_reading()

    def set_reading(self) -> None:
        """Read on, unless so much waits for its turn, or for the gate, that nothing more is read."""
        self._full = self._is_full()
        if self._must_wait():
            self.transport.pause_reading()
        elif self._unsliced:
            self.loop.call_soon(self._read_kept)
        else:
            self.transport.resume_reading()

    def _must_wait(self) -> bool:
        undecided = self._gated is not None and self._gated.undecided and not self._refused
        return bool(undecided) or self._is_full()

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._parser.should_upgrade():
            return
        self._reading = self._expecting = False
        if self._closing:
            return
        exchange = self._next
        assert exchange is not None
        exchange.incoming.body = self._body if self._pieces is None else self._take_body()
        self._body = b""
        is_next = self._exchange is None and self.writable is None and not self._waiting
        if not is_next:
            self._count_waiting(exchange.incoming)
        self._next = None
        if self._held:
            exchange.held, exchange.holder, self._held = self._held, self._holder, 0
        if is_next:
            self._begin(exchange)
            return
        self._waiting.append(exchange)
        if self._is_full():
            self.set_reading()

    def _sender(self) -> str:
        exchange = self._next or self._exchange
        return client_of(exchange.incoming) if exchange is not None else self.network or ""

    def _is_full(self) -> bool:
        """Whether so much waits to be answered that nothing more is read."""
        waiting = self._waiting
        if not waiting:
            return False
        if self._exchange is not None and self._exchange.is_streaming:
            return True  # A stream may last for ever.
        return len(waiting) >= _QUEUED or sum(exchange.held for exchange in waiting) > self._body_limit

    # Answering

    def _begin(self, exchange: Exchange) -> None:
        """Have the application answer, in a task of its own."""
        self._exchange = exchange
        answer = self._application.exchange
        if exchange.held:
            self._budget.give_back(exchange.holder, exchange.held)
        if len(exchange.incoming.body) > SMALL:  # Also one that came in one piece, which took nothing.
            answer = self._application.exchange_large
        state = self.state
        state.total_requests += 1
        answering = answer(exchange.incoming, exchange.receive, exchange.send, exchange.respond)
        # Not by the loop's task factory: one that starts tasks at once would do so inside the parser.
        task = asyncio.Task(answering, loop=self.loop, name="ekiden exchange")
        state.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """The application has answered: on to the next request."""
        self.state.tasks.discard(task)
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        was_cancelled = task.cancelled()
        exchange.end(None if was_cancelled else task.exception(), was_cancelled=was_cancelled)
        is_last = self._half_closed and not self._waiting and not self._refused
        if self._closing or is_last or not exchange.keep_alive:
            self._closing = True
            self.transport.close()
        elif not self._reading:
            self._since = self.loop.time()
        if self._waiting or self._expecting or self._refused:
            self._go_on()

    def _go_on(self) -> None:
        """Answer what waits for its turn, as long as the client takes the answers."""
        while self._exchange is None and self.writable is None and not self._closing:
            if self._waiting:
                if self._full:
                    self._since = self.loop.time()
                    exchange = self._waiting.popleft()
                    self.set_reading()
                else:
                    exchange = self._waiting.popleft()
                self._begin(exchange)
                continue
            if self._refused:
                self._send_refusal(self._refused)
            elif self._expecting:
                self._expecting = False
                self.transport.write(_CONTINUE)
            break

    def _refuse(self, status: int, reason: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Read nothing more. What came before is answered, then the refusal is sent, then we close."""
        self._refused = Refusal(status, reason, headers)
        self._drop_request()
        self._next = None
        self._reading = self._expecting = False
        self._go_on()

    def _send_refusal(self, refusal: Refusal) -> None:
        """Send the last response; then go on reading for a while: to close now could destroy it."""
        body = jsonrpc.error_response(None, InvalidRequest(refusal.reason))
        exchange = self.exchanges(self, Incoming("", "", {}, None, b""), keep_alive=False)
        exchange.respond(refusal.status, body, refusal.headers)
        self._closing = True
        self._since = self.loop.time()
        self._lingering = True
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def turn_away(self, reason: str) -> None:
        """Refuse all that comes on this connection."""
        self._refuse(503, reason, ((b"retry-after", b"1"),))
