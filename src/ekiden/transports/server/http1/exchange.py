"""One request on a connection of ours, and its response: ASGI's events turned into bytes."""

import asyncio
import logging
from typing import Any, Final, Protocol

from ekiden.errors import InternalError, ProtocolError
from ekiden.private_struct import PrivateStruct
from ekiden.signals import BrokenResponse
from ekiden.transports.server.http1.framing import STATUS_LINES, Framing, begin
from ekiden.transports.server.reply import Event
from ekiden.wire import jsonrpc
from ekiden.wire.incoming import Incoming
from ekiden.wire.json import is_object
from ekiden.wire.printable import printable

__all__ = ["Carrier", "Exchange", "method_and_name"]

_log = logging.getLogger(__name__)

_CLOSE: Final = b"connection: close\r\n"


class Carrier(Protocol):
    """What an exchange needs of its connection."""

    loop: asyncio.AbstractEventLoop
    transport: Any
    """The transport of asyncio or uvloop."""
    writable: asyncio.Future[None] | None
    """Done when the client reads again; None while it does."""

    def common_headers(self) -> bytes:
        """The headers that every response has, as bytes."""
        ...

    def count_unsent(self) -> None:
        """More was written although the client does not read."""
        ...


class Exchange(PrivateStruct):
    """One request and its response, as the application sees them: ASGI's `receive` and `send`."""

    _connection: Carrier
    incoming: Incoming
    keep_alive: bool
    _left: asyncio.Future[None] | None = None
    _gone: bool = False
    _started: Event | None = None
    _framing: Framing | None = None
    _streaming: bool = False
    _complete: bool = False
    held: int = 0
    """Bytes that it takes of the budget while it waits for its turn."""
    holder: str = ""
    """In whose name it does."""

    @property
    def is_streaming(self) -> bool:
        """Whether a stream of events has begun."""
        return self._streaming

    def end(self, error: BaseException | None, *, was_cancelled: bool = False) -> None:
        """The application has returned, was cancelled, or raised `error`. If it sent no response, send one
        for it."""
        if error is not None:
            _log.error("%s %s failed", self.incoming.method, printable(self.incoming.path), exc_info=error)
        if self._complete or self._gone:
            return
        self.keep_alive = False
        request_id = self.incoming.request_id() if self._framing is None and was_cancelled else None
        if request_id is not None:  # It has outlasted the time for a shutdown.
            # A plain response: some clients give up their whole session for an HTTP status of 500.
            self.respond(200, jsonrpc.error_response(request_id, InternalError(jsonrpc.PROCESS_ENDED)))
        elif self._framing is None:
            self._write({"type": "http.response.start", "status": 500, "headers": []})
            self._write({"type": "http.response.body", "body": b""})

    def leave(self) -> None:
        """The client is gone."""
        self._gone = True
        if self._left is not None and not self._left.done():
            self._left.set_result(None)

    async def receive(self) -> Event:
        """Wait until the client leaves. The request is here already, so that there is no other event."""
        if not self._gone and not self._complete:
            if self._left is None:
                self._left = self._connection.loop.create_future()
            await asyncio.shield(self._left)
        return {"type": "http.disconnect"}

    def respond(self, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Send a plain JSON response, with these headers besides the usual ones."""
        if self._gone or self._complete:
            return
        self._complete = True
        shown = b"" if self.incoming.method == "HEAD" else body
        connection = self._connection
        connection.transport.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b%b%b\r\n%b"
            % (
                STATUS_LINES[status],
                len(shown),
                connection.common_headers(),
                b"".join([b"%b: %b\r\n" % header for header in headers]) if headers else b"",
                b"" if self.keep_alive else _CLOSE,
                shown,
            )
        )

    async def send(self, event: Event) -> None:
        """Send one event of the response; waits while the client does not read its stream."""
        if self._gone or self._complete:
            return
        self._write(event)
        if event.get("more_body") and (writable := self._connection.writable) is not None:
            await asyncio.shield(writable)

    def _write(self, event: Event) -> None:
        """Write an event. The head waits for the first piece of the body, and goes out with it."""
        if event["type"] == "http.response.start":
            self._started = event
            return
        data: bytes = event.get("body", b"")
        more: bool = event.get("more_body", False)
        framing, head = self._framing, b""
        if framing is None:
            framing, head = self._begun(self._started, None if more else len(data))
        piece = framing.piece(data, more=more)
        self._framing, self._complete = framing, not more
        if more:
            self._streaming = not framing.is_empty
        elif framing.is_cut:
            self.keep_alive = False
        self._connection.transport.write(head + piece)
        if self._connection.writable is not None:  # The last event of a stream may be the largest.
            self._connection.count_unsent()

    def _begun(self, start: Event | None, size: int | None) -> tuple[Framing, bytes]:
        """How the body is sent, and the head that goes before it."""
        if start is None:
            raise BrokenResponse("a response begins with its status")
        framing = begin(
            self.incoming.method, start["status"], start["headers"], size, keep_alive=self.keep_alive
        )
        lines = [*framing.lines, self._connection.common_headers()]
        self.keep_alive = self.keep_alive and not framing.closes
        if not self.keep_alive:
            lines.append(_CLOSE)
        return framing, b"".join([*lines, b"\r\n"])


def method_and_name(incoming: Incoming) -> str:
    """What a request is about, for a log: `tools/call refund`. Empty if it cannot be read."""
    try:
        message = incoming.value()
    except ProtocolError:
        return ""
    if not is_object(message):
        return ""
    params = message.get("params")
    name = (params.get("name") or params.get("uri")) if is_object(params) else None
    words = [word for word in (message.get("method"), name) if isinstance(word, str)]
    return printable(" ".join(words))
