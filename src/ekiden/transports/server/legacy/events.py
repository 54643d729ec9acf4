"""Streams of events that outlive their connections (2025: Resumability and Redelivery).

Messages are kept under ids that count up, up to a limit. A connection is a reader of a stream: it
may be lost, and the next one goes on after the last event that the client has seen.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ekiden.errors import TransportError
from ekiden.transports.server.reply import Receive, Send
from ekiden.wire import sse
from ekiden.wire.jsonrpc import RequestId

__all__ = ["EventStream", "StreamResponse"]

_MOST_EVENTS: Final = 256
_MOST_BYTES: Final = 256 * 1024
"""What one stream keeps for a client that may come back. The newest event is always kept."""
_AHEAD: Final = 64
"""Events that a handler may be ahead of a connected client; then it waits."""
_RETRY_MS: Final = 500
"""How long a client whose connection was closed on purpose waits before it comes back."""


class EventStream:
    """The events of one stream; `number` None means that it cannot be resumed.

    `primed` begins it with an empty event, so that it can be resumed before anything was said. `begin` is the
    number of its first event.
    """

    def __init__(self, number: int | None, *, primed: bool, begin: int = 1) -> None:
        self.number = number
        self.ended = False
        self.on_end: Callable[[], None] | None = None
        self.on_change: Callable[[], None] | None = None
        """Called when there is an event more, or it has ended."""
        self.on_size: Callable[[int], None] | None = None
        """Called with the bytes that are kept, when they are others."""
        self.on_give_up: Callable[[], None] | None = None
        """Called when nothing is kept any more of what was said."""
        self.written_to: int | None = None
        """Events beyond this one are not sent yet, because they are not in the log; None if there is none."""
        self.waiting: dict[RequestId, None] = {}
        """The requests that have no response yet."""
        self.connection: StreamResponse | None = None
        self.is_awaited = False
        """Whether the first connection that reads it is about to."""
        self.can_be_resumed = primed
        self._kept: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._begin = self._next = begin
        self._changed = asyncio.Event()
        self._read = asyncio.Event()
        self._read_to = 0
        self._hung_up = False
        if primed:
            self._keep(self._id() + b"retry: %d\ndata: \n\n" % _RETRY_MS)

    def _id(self) -> bytes:
        return b"" if self.number is None else b"id: %d_%d\n" % (self.number, self._next)

    def append(self, message: bytes) -> None:
        """Add a message."""
        self._keep(self._id() + sse.event(message))

    def restore(self, events: Sequence[tuple[int, bytes]]) -> None:
        """Add events as another process has numbered them."""
        for number, event in events:
            self._next = number
            self._keep(event)

    def _keep(self, event: bytes) -> None:
        self._kept.append((self._next, event))
        self._next += 1
        self._bytes += len(event)
        self._trim()
        self._has_changed()

    def _has_changed(self) -> None:
        self._changed.set()
        if self.on_change is not None:
            self.on_change()

    def _trim(self) -> None:
        """Keep within the limits; what a connected client has yet to read is not given up."""
        while len(self._kept) > 1 and (len(self._kept) > _MOST_EVENTS or self._bytes > _MOST_BYTES):
            if self.connection is not None and self._kept[0][0] > self._read_to:
                break
            self._bytes -= len(self._kept.popleft()[1])
        if self.on_size is not None:
            self.on_size(self._bytes)

    @property
    def is_read(self) -> bool:
        """Whether a client reads it, or is about to."""
        return self.is_awaited or self.connection is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept."""
        return not self._kept

    def give_up(self) -> None:
        """Keep nothing of what was said, and close the connection that reads it: others need the memory."""
        self._kept.clear()
        self._bytes = 0
        if self.on_size is not None:
            self.on_size(0)
        if self.connection is not None:
            self.connection.leave()
            self.attach(None, self.last)
        self._has_changed()
        if self.on_give_up is not None:
            self.on_give_up()

    def end(self) -> None:
        """Nothing more comes."""
        if not self.ended:
            self.ended = True
            self._has_changed()
            if self.on_end is not None:
                self.on_end()

    def hang_up(self) -> None:
        """Close the connection, or the next one, when it has sent what there is; the stream goes on."""
        if not self.can_be_resumed:
            return
        if self.connection is None:
            self._hung_up = True
        else:
            self.connection.closing = True
            self.wake()

    def wake(self) -> None:
        """Make the response look for news again."""
        self._changed.set()

    async def has_room(self) -> None:
        """Wait until a connected client has read most of what was sent to it."""
        await asyncio.sleep(0)
        while self.connection is not None and self._is_far_ahead():
            self._read.clear()
            await self._read.wait()

    def _is_far_ahead(self) -> bool:
        unread = self._next - 1 - self._read_to
        return unread > _AHEAD or (unread > 0 and self._bytes > _MOST_BYTES)

    async def released(self) -> None:
        """Wait until no connection reads this any more."""
        while self.connection is not None:
            self._read.clear()
            await self._read.wait()

    @property
    def first(self) -> int:
        """The number of the first event that is kept."""
        return self._kept[0][0] if self._kept else self._next

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._next - 1

    def has_numbered(self, number: int) -> bool:
        """Whether this stream has given an event that number, in this process."""
        return self._begin <= number < self._next

    def since(self, after: int) -> list[tuple[int, bytes]]:
        """The kept events beyond one."""
        return [event for event in self._kept if event[0] > after]

    def after(self, last: int) -> tuple[int, bytes] | None:
        """The first kept event beyond `last`, if it may be sent."""
        event = next((event for event in self._kept if event[0] > last), None)
        is_ahead = event is not None and self.written_to is not None and event[0] > self.written_to
        return None if is_ahead else event

    @property
    def is_ahead(self) -> bool:
        """Whether there are events that may not be sent yet."""
        return self.written_to is not None and self.written_to < self.last

    async def news(self, seconds: float) -> bool:
        """Wait for something new, or for so long; whether there is any."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def attach(self, connection: "StreamResponse | None", read_to: int) -> None:
        """One reader at a time: a new one takes the place of the old."""
        self.is_awaited = False
        if self.connection is not None and connection is not None:
            self.connection.leave()
        if connection is not None and self._hung_up:
            self._hung_up, connection.closing = False, True
        self.connection = connection
        self.note(read_to)

    def note(self, read_to: int) -> None:
        """The reader has come to here."""
        self._read_to = read_to
        self._trim()
        self._read.set()


class StreamResponse:
    """One HTTP response that carries a stream, from one event on."""

    def __init__(
        self, stream: EventStream, send: Send, *, after: int, silence_seconds: float, stall_seconds: float
    ) -> None:
        self.closing = False
        """Whether it ends when it has sent what there is."""
        self._gone = False
        self._stream = stream
        self._send = send
        self._after = after
        self._silence_seconds = silence_seconds
        self._stall_seconds = stall_seconds

    def leave(self) -> None:
        """End at once: the client is gone, or has come back over another connection."""
        self._gone = True
        self._stream.wake()

    async def run(self, receive: Receive) -> None:
        """Send until the stream ends, the client leaves, or the connection is closed on purpose."""
        stream = self._stream
        stream.attach(self, self._after)
        leaving = asyncio.get_running_loop().create_task(self._watch(receive))
        try:
            with contextlib.suppress(TransportError, OSError):  # Raised if the client has left.
                await self._carry()
        finally:
            leaving.cancel()
            if stream.connection is self:
                stream.attach(None, self._after)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.leave()

    async def _carry(self) -> None:
        stream = self._stream
        while not self._gone:
            event = stream.after(self._after)
            if event is not None:
                await self._write(event[1])
                self._after = event[0]
                stream.note(self._after)
            elif (stream.ended or self.closing) and not stream.is_ahead:
                break
            elif not await stream.news(self._silence_seconds):
                await self._write(sse.KEEP_ALIVE)
        await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._stall_seconds):
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            raise TransportError("The client stopped reading its stream") from None
