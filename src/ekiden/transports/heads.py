"""Heads of requests that a connection brings again and again.

A client sends the same request line and the same headers with every call of a tool; only the length of
the body differs. What the parser made of such a head once, it would make of it again. So the bytes are
looked up, with the length cut out, and only what is new is parsed.
"""

from typing import Final

from ekiden.transports.reply import Incoming

__all__ = ["Heads"]

_FIELD: Final = len(b"\r\nContent-Length: ")
_DIGITS: Final = 15
"""Of a length; a body that needs more is refused for other reasons."""
_MOST: Final = 8
"""Heads that are remembered on one connection: the tools that a client calls in turn."""
_LONGEST: Final = 4096
"""Bytes of a head that is worth remembering."""
_UNUSUAL: Final = frozenset({b"connection", b"expect", b"transfer-encoding", b"upgrade"})
"""Headers that say something about the connection, or how the body is sent: those are parsed each time."""


class Heads:
    """The heads of one connection."""

    __slots__ = ("_known", "_new")

    def __init__(self) -> None:
        self._known: dict[bytes, Incoming] = {}
        self._new: tuple[bytes, bytes] | None = None
        """The head, without its length, and the length, of what is to be parsed now."""

    def find(self, data: bytes, limit: int) -> Incoming | None:
        """The request that `data` is, from its first byte to its last, if its head is known."""
        self._new = None
        end = data.find(b"\r\n\r\n")
        at = data.find(b"\r\nContent-Length: ", 0, end)
        if at < 0:
            at = data.find(b"\r\ncontent-length: ", 0, end)
        line_end = data.find(b"\r\n", at + _FIELD, end + 2)
        digits = data[at + _FIELD : line_end]
        if at < 0 or end > _LONGEST or len(digits) > _DIGITS or not digits.isdigit():
            return None
        body = data[end + 4 :]
        if len(body) != (size := int(digits)):
            return None
        head = data[:at] + data[line_end:end]
        known = self._known.get(head)
        if known is None or size > limit:
            self._new = head, digits
            return None
        headers = {**known.headers, b"content-length": digits}
        return Incoming(known.method, known.path, list(headers.items()), headers, None, body)

    def learn(self, incoming: Incoming) -> None:
        """Remember what the parser made of the data for which `find` found nothing."""
        new, self._new = self._new, None
        headers = incoming.headers
        if (
            new is not None
            and incoming.refusal is None
            and headers.get(b"content-length") == new[1] == b"%d" % len(incoming.body)
            and len(headers) == len(incoming.pairs)
            and _UNUSUAL.isdisjoint(headers)
        ):
            if len(self._known) == _MOST:
                self._known.clear()
            self._known[new[0]] = Incoming(incoming.method, incoming.path, [], headers, None, b"")
