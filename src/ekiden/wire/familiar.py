"""Requests that a client repeats word for word, but for their id.

A client asks for the same list again and again, with the same `_meta`, and only the id counts up. Such
a body need not be read again: what was found in order once is in order now. The id is cut out where
it is certain to be the request's own: at the very beginning, or at the very end, of the object.
"""

from typing import Final

from ekiden.wire.headers import Headers
from ekiden.wire.modern import Request

__all__ = ["Familiar"]

_BEGINNING: Final = b'{"jsonrpc":"2.0","id":'
_ENDING: Final = b',"jsonrpc":"2.0","id":'
_MOST: Final = 256
"""Bodies that are remembered; a hostile client cannot fill more than this."""
_LONGEST: Final = 2048
"""Bytes of a body that is worth remembering."""


class Familiar:
    """Bodies that were accepted before."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes | None, bytes | None], Request] = {}
        self.methods: set[bytes | None] = set()
        """Methods of which any are known, as headers spell them."""

    def find(self, body: bytes, headers: Headers) -> tuple[int, Request] | None:
        """The id of a familiar request, and the request that it repeats."""
        method = headers.get(b"mcp-method")
        cut = _cut(body) if method in self.methods else None
        if cut is None:
            return None
        known = self._known.get((cut[1], headers.get(b"mcp-protocol-version"), method))
        return None if known is None else (cut[0], known)

    def learn(self, body: bytes, headers: Headers, request: Request) -> None:
        """Remember a request that was accepted."""
        cut = _cut(body) if len(body) <= _LONGEST and len(self._known) < _MOST else None
        if cut is not None and cut[0] == request.id:
            method = headers.get(b"mcp-method")
            self._known[cut[1], headers.get(b"mcp-protocol-version"), method] = request
            self.methods.add(method)


def _cut(body: bytes) -> tuple[int, bytes] | None:
    """The id, and the rest of the body without it."""
    if body.startswith(_BEGINNING):
        end = body.find(b",", 22)
        digits = body[22:end]
        rest = body[end:]
    else:
        start = body.rfind(_ENDING)
        digits = body[start + 22 : -1]
        rest = body[: max(start, 0)]
    if digits.isdigit() and len(digits) < 16 and (digits[0] != 0x30 or digits == b"0"):
        return int(digits), rest
    return None
