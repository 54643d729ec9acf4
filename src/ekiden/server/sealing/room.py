"""How much of the store the states of one principal's calls may take, so that one client cannot fill it.

A client decides how long its answers are, and may send the same round again: each time, a state that is too
large to travel is put into the store anew. Counted is what this process has put there, until it expires.
"""

from collections import OrderedDict, deque
from typing import Final

from ekiden.errors import InternalError

__all__ = ["Room"]

_REMEMBERED: Final = 10_000
"""Principals that are counted. Of more, the one that was silent longest is forgotten."""


class _Kept:
    """What is kept for one principal: its bytes, and when which of them expire."""

    __slots__ = ("bytes", "parts")

    def __init__(self) -> None:
        self.bytes = 0
        self.parts: deque[tuple[float, int]] = deque()


class Room:
    """Counts the bytes of each principal; `shared` is for all clients that are not told apart."""

    def __init__(self, each: int | None, shared: int | None) -> None:
        self._each = each
        self._shared = shared
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def take(self, principal: str, size: int, *, now: float, expires: float) -> None:
        """Take room for so many bytes until they expire; `InternalError` if there is none."""
        most = self._each if principal else self._shared
        if most is None:
            return
        kept = self._kept.setdefault(principal, _Kept())
        self._kept.move_to_end(principal)
        while kept.parts and kept.parts[0][0] <= now:
            kept.bytes -= kept.parts.popleft()[1]
        if kept.bytes + size > most:
            raise InternalError(
                f"Too much is kept for your calls: {kept.bytes} bytes of {most}. Try again in some minutes"
            )
        kept.bytes += size
        kept.parts.append((expires, size))
        if len(self._kept) > _REMEMBERED:
            self._kept.popitem(last=False)
