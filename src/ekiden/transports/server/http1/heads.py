"""Heads of requests that a connection brings again and again.

A client sends the same request line and the same headers with every call of a tool; only the length of
the body differs. What the parser made of such a head once, it would make of it again. So the bytes are
looked up, with the length cut out, and only what is new is parsed.
"""

import re
from typing import Final

import msgspec

from ekiden.transports.server.reply import Incoming
from ekiden.wire.headers import Headers

__all__ = ["Heads"]

_DIGITS: Final = 15
"""Of a length; a body that needs more is refused for other reasons."""
_MOST: Final = 8
"""Heads that are remembered on one connection: the tools that a client calls in turn."""
_LONGEST: Final = 4096
"""Bytes of a head that is worth remembering."""
_UNUSUAL: Final = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
"""Headers that say something about the connection, or how the body is sent: those are parsed each time."""
_USUAL_CONNECTION: Final = b"keep-alive"
"""What many clients say of the connection, and what holds anyway."""
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ([0-9]+)(?=\r\n)", re.IGNORECASE)


class Head(msgspec.Struct):
    """A head with its length cut out."""

    before: bytes
    after: bytes
    """What follows the length, and the end of the head."""
    method: str
    path: str
    headers: Headers


class Heads:
    """The heads of one connection, the newest first."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: list[Head] = []

    def find(self, data: bytes, limit: int) -> Incoming | None:
        """The request that `data` is, from its first byte to its last, if its head is known."""
        for head in self._known:
            if not data.startswith(head.before):
                continue
            start = len(head.before)
            end = data.find(b"\r\n", start, start + _DIGITS)
            if end < 0 or not data.startswith(head.after, end):
                continue
            length, body = data[start:end], data[end + len(head.after) :]
            if length == b"%d" % len(body) and len(body) <= limit:
                headers = {**head.headers, b"content-length": length}
                return Incoming(head.method, head.path, headers, None, body)
        return None

    def learn(self, data: bytes, incoming: Incoming) -> None:
        """Remember what the parser made of `data`, if that was this one request."""
        headers = incoming.headers
        end = data.find(b"\r\n\r\n") + 4
        if (
            end <= _LONGEST
            and data[end:] == incoming.body
            and incoming.refusal is None
            and incoming.repeating is None
            and _UNUSUAL.isdisjoint(headers)
            and headers.get(b"connection", _USUAL_CONNECTION).lower() == _USUAL_CONNECTION
            and (length := _LENGTH.search(data, 0, end)) is not None
            and length[1] == headers.get(b"content-length") == b"%d" % len(incoming.body)
        ):
            head = Head(
                data[: length.start(1)], data[length.end(1) : end], incoming.method, incoming.path, headers
            )
            self._known = [head, *self._known[: _MOST - 1]]
