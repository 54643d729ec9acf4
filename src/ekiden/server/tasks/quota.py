"""How many tasks a principal may have, so that one client cannot fill the store."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from ekiden.errors import InternalError
from ekiden.tasks.limits import TaskLimits
from ekiden.tasks.store import TaskStore, Usage

__all__ = ["TaskQuota"]

_FRESH_SECONDS: Final = 10.0
"""How long a look at the store counts."""
_REMEMBERED: Final = 1000
"""Principals whose last look is remembered."""


class _Room(msgspec.Struct):
    """What a principal may still take before the store is looked at again."""

    tasks: float
    bytes: float
    until: float

    def has(self, size: int, now: float) -> bool:
        """Whether there is room for one more, without a look."""
        return self.tasks >= 1 and self.bytes >= size and now <= self.until


class TaskQuota:
    """Refuses a new task to a principal that has too many, or too large ones.

    The store is not asked for every task: half of what it says is left may be taken in `_FRESH_SECONDS`. So
    several processes together may go over the limit, but not far, and not for long.
    """

    def __init__(self, limits: TaskLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._rooms: OrderedDict[str, _Room] = OrderedDict()
        self._coming: dict[str, tuple[int, int]] = {}
        """Tasks and bytes that each principal has taken and that the store may not know of yet."""
        self._looking = asyncio.Lock()
        self._counting: str | None = None
        """The principal whose tasks the store counts now, while none of them was stored meanwhile."""

    async def take(self, store: TaskStore, audience: str, principal: str, size: int) -> None:
        """Take room for one task of `size` bytes; `InternalError` if there is none.

        `give_back` it when the task is stored, or could not be.
        """
        most_tasks, most_bytes = self._most(principal)
        if most_tasks is not None or most_bytes is not None:
            room = self._rooms.get(principal)
            if room is None or not room.has(size, self._clock()):
                async with self._looking:
                    room = self._rooms.get(principal)
                    if room is None or not room.has(size, self._clock()):
                        used = await self._used(store, audience, principal)
                        _check(used, size, most_tasks, most_bytes)
                        room = self._remember(
                            principal, _half(most_tasks, used.open), _half(most_bytes, used.bytes)
                        )
            room.tasks -= 1
            room.bytes -= size
        tasks, taken = self._coming.get(principal, (0, 0))
        self._coming[principal] = (tasks + 1, taken + size)

    def give_back(self, principal: str, size: int) -> None:
        """The store knows of the task, or never will."""
        if self._counting == principal:
            self._counting = None
        tasks, taken = self._coming.pop(principal)
        if tasks > 1:
            self._coming[principal] = (tasks - 1, taken - size)

    async def _used(self, store: TaskStore, audience: str, principal: str) -> Usage:
        """What a principal takes, with what the store may not know of yet."""
        self._rooms.pop(principal, None)  # Whoever wants more waits, so that the loop below ends.
        while True:
            self._counting = principal
            used = await store.usage(audience, principal)
            if self._counting == principal:
                tasks, taken = self._coming.get(principal, (0, 0))
                return Usage(used.open + tasks, used.bytes + taken)
            # A task was stored while the store counted, maybe too late to be in its count: count again.

    def _remember(self, principal: str, tasks: float, size: float) -> _Room:
        room = self._rooms[principal] = _Room(tasks, size, self._clock() + _FRESH_SECONDS)
        self._rooms.move_to_end(principal)
        if len(self._rooms) > _REMEMBERED:
            self._rooms.popitem(last=False)
        return room

    def _most(self, principal: str) -> tuple[int | None, int | None]:
        limits = self._limits
        if principal:
            return limits.per_principal, limits.bytes_per_principal
        return limits.without_principal, limits.bytes_without_principal


def _half(most: int | None, used: int) -> float:
    return float("inf") if most is None else (most - used) / 2


def _check(used: Usage, size: int, most_tasks: int | None, most_bytes: int | None) -> None:
    if most_tasks is not None and used.open >= most_tasks:
        raise InternalError(
            f"Too many tasks: {used.open} of yours have not ended. Wait for one to end, or cancel one"
        )
    if most_bytes is not None and used.bytes + size > most_bytes:
        raise InternalError(
            f"Too much is kept for your tasks: {used.bytes} bytes of {most_bytes}. "
            "Tasks are forgotten when their time to live is over"
        )
