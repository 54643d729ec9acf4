"""Where a response ends, so that nobody takes a part of it for the next one.

An application below a route says what it likes: a length that is wrong, a body where none may be, line breaks
in headers. A proxy in front of us would hand what it could not attribute to the next client. So the framing
is made here, and what contradicts it is an error of the application.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

import msgspec

from ekiden.signals import BrokenResponse

__all__ = ["STATUS_LINES", "Framing", "begin"]

STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
} | {499: b"HTTP/1.1 499 Client Closed Request\r\n"}
"""By status. 499 is not a standard: `Reply` ends with it for a client that has left."""
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_A_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_BODY: Final = frozenset({204, 304})
_DECIDED_HERE: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding"})
"""Headers of the connection, of which the application knows nothing but that it may want it closed."""
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"


class Framing(msgspec.Struct, gc=False):
    """How the body of one response is sent."""

    lines: list[bytes]
    """The status line and the headers, without those of every response."""
    closes: bool
    """Whether the application wants the connection to be closed."""
    is_empty: bool
    """Whether no body may follow, whatever the application sends."""
    is_chunked: bool
    left: int | None
    """Bytes of the declared length that are to come; None if none is declared."""

    def piece(self, data: bytes, *, more: bool) -> bytes:
        """A piece of the body as it is sent."""
        if self.is_empty:
            return b""
        if self.left is not None:
            self.left -= len(data)
            if self.left < 0:
                raise BrokenResponse("the body of a response is longer than its content-length")
            return data
        if not self.is_chunked:
            return data
        chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        return chunk if more else chunk + b"0\r\n\r\n"

    @property
    def is_cut(self) -> bool:
        """Whether the body ended before its declared length: then only the end of the connection tells."""
        return bool(self.left) and not self.is_empty


def begin(
    method: str, status: int, headers: Iterable[tuple[bytes, bytes]], size: int | None, *, keep_alive: bool
) -> Framing:
    """The framing of a response with this head. `size` is that of the body if it is whole, else None."""
    if not 200 <= status <= 999:
        raise BrokenResponse(f"{status} is not the status of a response")
    lines = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    length: int | None = None
    closes = False
    for given, value in headers:
        if _NAME.fullmatch(given) is None or _NOT_A_VALUE.search(value) is not None:
            raise BrokenResponse(f"the header {given!r} of a response must be a name, and on one line")
        name = given.lower()
        if name in _DECIDED_HERE:
            closes = closes or (name == b"connection" and value.strip().lower() == b"close")
            continue
        if name == b"content-length":
            if length is not None or not value.isdigit():
                raise BrokenResponse("a response has one content-length, which is a number")
            length = int(value[:20])
        lines.append(b"%b: %b\r\n" % (name, value))
    is_empty = method == "HEAD" or status in _WITHOUT_BODY
    is_chunked = False
    if length is None and size is not None:
        if status not in _WITHOUT_BODY:
            lines.append(b"content-length: %d\r\n" % size)
        length = size
    elif length is None and keep_alive and not closes and not is_empty:
        lines.append(_CHUNKED)
        is_chunked = True
    return Framing(lines, closes, is_empty, is_chunked, length)
