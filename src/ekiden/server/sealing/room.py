"""How much of the store the calls of one principal may take, so that one client cannot fill it.

A client decides how long its answers are, and may send the same round again: each time, a state that is too
large to travel is put into the store anew. It also decides how many rounds it makes, and each is remembered
with the values of its steps. Counted is what this process has put there, until it expires.
"""

import heapq
import math
from collections import OrderedDict
from typing import Final

from ekiden.errors import InternalError

__all__ = ["Room"]

_REMEMBERED: Final = 10_000
"""Principals that are counted. Of more, the one that was silent longest is forgotten."""
_TOGETHER_SECONDS: Final = 10
"""What expires within this time is counted as one, so that a million rounds take no memory here."""
_LITTLE: Final = 32
"""Who has at most this part of what all may have has almost nothing."""


class _Kept:
    """What is kept for one principal: its bytes, and how many of them expire when."""

    __slots__ = ("bytes", "ends", "parts")

    def __init__(self) -> None:
        self.bytes = 0
        self.parts: dict[int, int] = {}
        self.ends: list[int] = []
        """The times in `parts`, as a heap."""

    def add(self, size: int, expires: float) -> None:
        end = math.ceil(expires / _TOGETHER_SECONDS) * _TOGETHER_SECONDS
        if end not in self.parts:
            heapq.heappush(self.ends, end)
        self.parts[end] = self.parts.get(end, 0) + size
        self.bytes += size

    def forget_until(self, now: float) -> None:
        while self.ends and self.ends[0] <= now:
            self.bytes -= self.parts.pop(heapq.heappop(self.ends))


class Room:
    """Counts the bytes of each principal; `shared` is for all clients without one.

    Those are told apart by their addresses, if these are known: one that has almost nothing here may go
    beyond `shared`, by a quarter of it, so that no other client can use all of it up.
    """

    def __init__(self, each: int | None, shared: int | None) -> None:
        self._each = each
        self._shared = shared
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._clients: OrderedDict[str, _Kept] = OrderedDict()
        """Of clients without a principal, by address."""

    def check(self, principal: str, size: int, *, now: float, client: str = "") -> None:
        """`InternalError` if there is no room for so many bytes."""
        most = self._each if principal else self._shared
        kept = self._kept.get(principal)
        if most is None:
            return
        if kept is not None:
            kept.forget_until(now)
        taken = 0 if kept is None else kept.bytes
        if taken + size > most and (principal or not self._has_more(client, taken + size, size, now)):
            raise InternalError(
                f"Too much is kept for your calls: {taken} bytes of {most}. Try again in some minutes"
            )

    def _has_more(self, client: str, total: int, size: int, now: float) -> bool:
        """Whether there is room beyond the limit of all for a client: it has almost nothing here."""
        most = self._shared or 0
        kept = self._clients.get(client)
        if kept is not None:
            kept.forget_until(now)
        own = size if kept is None else kept.bytes + size
        return bool(client) and own <= most // _LITTLE and total <= most + most // 4

    def add(self, principal: str, size: int, *, expires: float, client: str = "") -> None:
        """Count bytes until they expire, also if there is no room for them."""
        if (self._each if principal else self._shared) is None:
            return
        _count(self._kept, principal, size, expires)
        if client and not principal:
            _count(self._clients, client, size, expires)

    def take(self, principal: str, size: int, *, now: float, expires: float, client: str = "") -> None:
        """Take room for so many bytes until they expire; `InternalError` if there is none."""
        self.check(principal, size, now=now, client=client)
        self.add(principal, size, expires=expires, client=client)


def _count(all_kept: "OrderedDict[str, _Kept]", name: str, size: int, expires: float) -> None:
    kept = all_kept.setdefault(name, _Kept())
    all_kept.move_to_end(name)
    kept.add(size, expires)
    if len(all_kept) > _REMEMBERED:
        all_kept.popitem(last=False)
