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
"""Principals whose last look is remembered, and clients of which is known what they took."""
_REFUSED_SECONDS: Final = 0.5
"""For how long somebody who was refused is refused again without a look at the store."""
_STORING_SECONDS: Final = 2.0
"""For how long somebody who would be refused waits until a task on its way is stored."""
_LATE_SECONDS: Final = 3600.0
"""For how long it is remembered what a client without a principal took."""
_LITTLE: Final = 32
"""Who took less than this part of a limit took little."""


class _Room(msgspec.Struct):
    """What a principal may still take before the store is looked at again."""

    tasks: float
    bytes: float
    until: float

    def has(self, size: int, now: float) -> bool:
        """Whether there is room for one more, without a look."""
        return self.tasks >= 1 and self.bytes >= size and now <= self.until


class _Newcomers:
    """What each client without a principal took of late, by its address.

    Where all of them share one limit, one client could use it up. So a client that took little of late may go
    beyond the limit, by a quarter of it.
    """

    def __init__(self) -> None:
        self._of: OrderedDict[str, _Room] = OrderedDict()

    def took(self, client: str, size: int, now: float) -> None:
        """A client takes room for a task."""
        taken = self._of.pop(client, None)
        if taken is None or taken.until < now:
            taken = _Room(0, 0, now + _LATE_SECONDS)
        taken.tasks += 1
        taken.bytes += size
        self._of[client] = taken
        if len(self._of) > _REMEMBERED:
            self._of.popitem(last=False)

    def took_little(self, client: str, tasks: int | None, size: int | None, now: float) -> bool:
        """Whether a client took almost nothing of such limits."""
        taken = self._of.get(client)
        if not client or taken is None or taken.until < now:
            return bool(client)
        return (tasks is None or taken.tasks < tasks // _LITTLE) and (
            size is None or taken.bytes < size // _LITTLE
        )


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
        self._newcomers = _Newcomers()
        self._refused: dict[str, tuple[float, int, str]] = {}
        """Until when a principal is refused again, from how many bytes on, and what was said."""
        self._looking = asyncio.Lock()
        self._counting: str | None = None
        """The principal whose tasks the store counts now, while none of them was stored meanwhile."""
        self._stored: asyncio.Event | None = None
        """Set when a task on its way is stored, for whoever waits for that."""

    async def take(
        self, store: TaskStore, audience: str, principal: str, size: int, client: str = ""
    ) -> None:
        """Take room for one task of `size` bytes; `InternalError` if there is none.

        `client` is the address of one without a principal. `give_back` the room when the task is stored, or
        could not be.
        """
        most_tasks, most_bytes = self._most(principal)
        if most_tasks is not None or most_bytes is not None:
            room = self._rooms.get(principal)
            if room is None or not room.has(size, self._clock()):
                self._refuse_again(principal, size)
                async with self._looking:
                    self._refuse_again(principal, size)
                    room = self._rooms.get(principal)
                    if room is None or not room.has(size, self._clock()):
                        used = await self._used(store, audience, principal, size)
                        room = self._room_left(principal, client, used, size)
            room.tasks -= 1
            room.bytes -= size
            if not principal:
                self._newcomers.took(client, size, self._clock())
        tasks, taken = self._coming.get(principal, (0, 0))
        self._coming[principal] = (tasks + 1, taken + size)

    def _refuse_again(self, principal: str, size: int) -> None:
        """Refuse what was refused a moment ago without a look: others wait for theirs."""
        until, least, message = self._refused.get(principal, (float("-inf"), 0, ""))
        if self._clock() < until and size >= least:
            raise InternalError(message)

    def _room_left(self, principal: str, client: str, used: Usage, size: int) -> _Room:
        """What a principal may take without another look; `InternalError` if there is no room."""
        tasks, most = self._most(principal)
        try:
            _check(used, size, tasks, most)
        except InternalError as error:
            if principal:
                if len(self._refused) >= _REMEMBERED:
                    self._refused.clear()
                self._refused[principal] = (self._clock() + _REFUSED_SECONDS, size, error.message)
            if principal or not self._newcomers.took_little(client, tasks, most, self._clock()):
                raise
            _check(used, size, _more(tasks), _more(most))
            return _Room(1, size, 0)  # For this one only.
        return self._remember(principal, _half(tasks, used.open), _half(most, used.bytes))

    def give_back(self, principal: str, size: int) -> None:
        """The store knows of the task, or never will."""
        if self._counting == principal:
            self._counting = None
        if self._stored is not None:
            self._stored.set()
        tasks, taken = self._coming.pop(principal)
        if tasks > 1:
            self._coming[principal] = (tasks - 1, taken - size)

    async def _used(self, store: TaskStore, audience: str, principal: str, size: int) -> Usage:
        """What a principal takes, with what the store may not know of yet."""
        self._rooms.pop(principal, None)  # Whoever wants more waits, so that the loop below ends.
        while True:
            self._counting = principal
            used = await store.usage(audience, principal)
            if self._counting != principal:
                # A task was stored while the store counted, maybe too late to be in its count: count again.
                continue
            tasks, taken = self._coming.get(principal, (0, 0))
            both = Usage(used.open + tasks, used.bytes + taken)
            # One that is stored, and whose request has not heard of it yet, is in both counts.
            if not tasks or _problem(both, size, *self._most(principal)) is None:
                return both
            if not await self._has_stored_one():
                return both

    async def _has_stored_one(self) -> bool:
        """Wait until a task on its way is stored. False if that takes too long."""
        self._stored = asyncio.Event()
        try:
            async with asyncio.timeout(_STORING_SECONDS):
                await self._stored.wait()
        except TimeoutError:
            return False
        finally:
            self._stored = None
        return True

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


def _more(most: int | None) -> int | None:
    return None if most is None else most + most // 4


def _half(most: int | None, used: int) -> float:
    return float("inf") if most is None else (most - used) / 2


def _check(used: Usage, size: int, most_tasks: int | None, most_bytes: int | None) -> None:
    if (problem := _problem(used, size, most_tasks, most_bytes)) is not None:
        raise InternalError(problem)


def _problem(used: Usage, size: int, most_tasks: int | None, most_bytes: int | None) -> str | None:
    """Why there is no room for one more; None if there is."""
    if most_tasks is not None and used.open >= most_tasks:
        return f"Too many tasks: {used.open} of yours have not ended. Wait for one to end, or cancel one"
    if most_bytes is not None and used.bytes + size > most_bytes:
        return (
            f"Too much is kept for your tasks: {used.bytes} bytes of {most_bytes}. "
            "Tasks are forgotten when their time to live is over"
        )
    return None
