"""One request on a connection of ours, and its response: ASGI's events turned into bytes."""

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ekiden.opaque import Opaque
from ekiden.transports.server.reply import Event, Incoming

if TYPE_CHECKING:
    from ekiden.transports.server.asgi import StreamableHTTP
    from ekiden.transports.server.http1.connection import Connection

__all__ = ["CLOSE", "STATUS_LINES", "Exchange"]

_log = logging.getLogger("ekiden.http")

STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
CLOSE: Final = b"connection: close\r\n"


class Exchange(Opaque):
    """One request and its response, as the application sees them: ASGI's `receive` and `send`."""

    _connection: "Connection"
    incoming: Incoming
    keep_alive: bool
    _left: asyncio.Future[None] | None = None
    _gone: bool = False
    _started: Event | None = None
    _streaming: bool = False
    _chunked: bool = False
    _complete: bool = False

    async def run(self, application: "StreamableHTTP") -> None:
        """Have the application answer."""
        connection = self._connection
        try:
            await application.exchange(self.incoming, self.receive, self.send, self.respond)
        except Exception:
            _log.exception("%s %s failed", self.incoming.method, self.incoming.path)
        finally:
            if not self._complete and not self._gone:
                await self._give_up()
            connection.ended(self)

    async def _give_up(self) -> None:
        """The application left without an answer."""
        self.keep_alive = False
        if not self._streaming:
            await self.send({"type": "http.response.start", "status": 500, "headers": []})
            await self.send({"type": "http.response.body", "body": b""})

    def leave(self) -> None:
        """The client is gone."""
        self._gone = True
        if self._left is not None and not self._left.done():
            self._left.set_result(None)

    async def receive(self) -> Event:
        """Wait for the client to go: its request is here already."""
        if not self._gone and not self._complete:
            if self._left is None:
                self._left = self._connection.loop.create_future()
            await asyncio.shield(self._left)
        return {"type": "http.disconnect"}

    def respond(self, status: int, body: bytes) -> None:
        """Send a response that is JSON and no stream."""
        if not self._gone and not self._complete:
            self._complete = True
            shown = b"" if self.incoming.method == "HEAD" else body
            self._connection.write_json(status, shown, keep_alive=self.keep_alive)

    async def send(self, event: Event) -> None:
        """Take one event of the response."""
        if self._gone or self._complete:
            return
        connection = self._connection
        if event["type"] == "http.response.start":
            self._started = event
            return
        data: bytes = event.get("body", b"")
        more: bool = event.get("more_body", False)
        if self._started is not None:
            data = self._head(self._started, len(data), more) + self._framed(data, more)
            self._started = None
        else:
            data = self._framed(data, more)
        if not more:
            self._complete = True
        connection.transport.write(data)
        if more and connection.writable is not None:
            await asyncio.shield(connection.writable)

    def _head(self, start: Event, size: int, more: bool) -> bytes:
        headers: list[tuple[bytes, bytes]] = start["headers"]
        spelled = [STATUS_LINES[start["status"]]]
        for name, value in headers:
            spelled.append(b"%b: %b\r\n" % (name, value))
            if name == b"connection":
                self.keep_alive = False
        spelled.append(self._connection.head())
        if more:
            self._streaming = True
            self._chunked = self.keep_alive
            if self._chunked:
                spelled.append(b"transfer-encoding: chunked\r\n")
        elif not any(name == b"content-length" for name, _ in headers):
            spelled.append(b"content-length: %d\r\n" % size)
        if not self.keep_alive and not any(name == b"connection" for name, _ in headers):
            spelled.append(CLOSE)
        spelled.append(b"\r\n")
        return b"".join(spelled)

    def _framed(self, data: bytes, more: bool) -> bytes:
        if not self._streaming:
            return b"" if self.incoming.method == "HEAD" else data
        if not self._chunked:
            return data
        chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        return chunk if more else chunk + b"0\r\n\r\n"
