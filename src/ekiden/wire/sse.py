"""Server-sent events: one JSON-RPC message per event, and comments that keep a stream alive."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from ekiden.errors import TooMuch

__all__ = ["KEEP_ALIVE", "Decoder", "Event", "event", "numbered"]

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment: proxies see traffic, clients see nothing."""

_NOTHING: Final = re.compile(rb"(?:(?::[^\r\n]*+)?[\r\n])++")
"""Comments and empty lines in a row, skipped together: a server that sends only those costs little."""


def numbered(stream: int, number: int, message: bytes) -> bytes:
    """The event that carries a message, with an id that names its stream and its place in it."""
    return b"id: %d_%d\n" % (stream, number) + event(message)


def event(message: bytes) -> bytes:
    """One message as one event. `message` is a single line, as everything from `wire.json` is."""
    return b"event: message\ndata: %b\n\n" % message


class Event(msgspec.Struct):
    """One event as it was received."""

    data: bytes
    id: str | None = None
    """The last id that the stream named; what a resumption starts from."""
    retry_ms: int | None = None
    name: str = "message"


class Decoder:
    """Events out of a stream that comes in arbitrary pieces; lines end with LF, CR or CRLF."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._data: bytearray | None = None
        """The data so far. Not a list of lines: an empty one takes eight bytes there."""
        self._searched = 0
        self._name = "message"
        self._id: str | None = None
        self._retry_ms: int | None = None
        self._skip_lf = False
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that are complete with this chunk; an event beyond the limit is refused."""
        self._buffer += chunk
        start = 0
        data = self._buffer
        cr = data.find(b"\r", self._searched)
        while True:
            if self._skip_lf and start < len(data):
                start += data[start] == 0x0A
                self._skip_lf = False
            if self._is_idle and (nothing := _NOTHING.match(data, start)) is not None:
                start = nothing.end()
            end = data.find(b"\n", max(start, self._searched))
            if 0 <= cr < start:
                cr = data.find(b"\r", start)
            if cr >= 0 and (end < 0 or cr < end):
                end = cr
            if end < 0:
                break
            line = bytes(data[start:end])
            self._skip_lf = data[end] == 0x0D
            start = end + 1
            if (complete := self._line(line)) is not None:
                yield complete
        del self._buffer[:start]
        self._searched = len(self._buffer)  # No line ends in these: the next search begins after them.
        if self.waiting > self._limit:
            raise TooMuch(f"The server sent an event of more than {self._limit} bytes")

    @property
    def waiting(self) -> int:
        """Bytes that have come of an event that is not complete."""
        return len(self._buffer) + len(self._data or b"")

    def clear(self) -> None:
        """Forget what has come of it: nothing more will."""
        self._buffer, self._data = bytearray(), None

    @property
    def _is_idle(self) -> bool:
        """Whether nothing of an event has come yet, so that an empty line means nothing."""
        return self._begun and self._data is None and self._retry_ms is None and self._name == "message"

    def _line(self, line: bytes) -> Event | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            if self._data is None:
                self._data = bytearray(value)
            else:
                self._data += b"\n" + value
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id" and b"\x00" not in value:
            self._id = value.decode(errors="replace")
        elif field == b"retry" and value.isdigit() and len(value) < 10:
            self._retry_ms = int(value)
        return None

    def _dispatch(self) -> Event | None:
        data, name, retry = self._data, self._name, self._retry_ms
        self._data, self._name, self._retry_ms = None, "message", None
        if data is None and retry is None:
            return None
        return Event(bytes(data or b""), self._id, retry, name)
