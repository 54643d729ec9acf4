"""The leases of the tasks that this process holds: how they are renewed, and how long they are certain.

A lease counts from the moment at which it was asked for, not from the store's reply: that may have taken
long. Two clocks measure it, because each of them can stand still while the other goes on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeVar

import msgspec

from ekiden.errors import StoreUnavailable
from ekiden.tasks.leases.standby import LeaseStore, Standby
from ekiden.tasks.store import TaskStore

__all__ = ["SURE_PART", "Asked", "Leased", "Leases", "answer_of", "is_late", "is_sure", "newer"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

SURE_PART: Final = 0.75
"""The part of its lease for which a worker is sure that it has a task. The rest is for clocks that differ in
speed, and for the time between the look at the clock and what is done then."""

_LATE_PART: Final = 0.4
"""The part of a lease after which its renewal is late: it is tried when a third is over. The thread that
stands by notices some time after this, and still before two thirds. Clocks may differ by a third of a lease,
so later may be too late."""

_LONGEST_RETRY: Final = 0.25
"""Seconds between two tries while the store is away."""


class Asked(msgspec.Struct, frozen=True):
    """When a lease was asked for: it counts from before the question, whenever the answer came."""

    loop: float
    """By a clock that never goes back."""
    wall: float
    """By the clock of the machine, which also goes on while the machine sleeps."""


def is_sure(asked: Asked, seconds: float, *, loop: float, wall: float) -> bool:
    """Whether a lease of so many seconds that was asked for then has certainly not run out."""
    return max(loop - asked.loop, wall - asked.wall) < seconds * SURE_PART


def is_late(asked: Asked, seconds: float, *, loop: float, wall: float) -> bool:
    """Whether a lease of so many seconds that was asked for then should have been renewed by now."""
    return max(loop - asked.loop, wall - asked.wall) > seconds * _LATE_PART


def newer(one: Asked, other: Asked) -> Asked:
    """Of two renewals the newer: the event loop may hear of an older one after a thread has heard of it."""
    return max(one, other, key=lambda asked: asked.loop)


async def answer_of(asked: Awaitable[T]) -> T:
    """What a store answers. One that cancels what it was asked for, as if we had done so, is unavailable."""
    try:
        return await asked
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise StoreUnavailable("the store has given up what it was asked for") from None


class Leased(Protocol):
    """A task that this process holds."""

    id: str
    fence: int
    asked: Asked
    """When its lease was asked for."""

    def look_soon(self) -> None:
        """Something may have changed: look."""
        ...

    def lose(self) -> None:
        """Another worker has the task, or it is over."""
        ...


class Leases:
    """Renews the leases of one worker. Implements `ekiden.tasks.leases.standby.Leaseholder`."""

    def __init__(
        self,
        store: TaskStore,
        runs: Mapping[str, Leased],
        clock: Callable[[], float],
        seconds: float,
        standby: Standby | None = None,
    ) -> None:
        self._store = store
        self._runs = runs
        self._clock = clock
        self._seconds = seconds
        self._standby = standby
        self._loop = asyncio.get_running_loop()

    def asked(self) -> Asked:
        """The time, for a lease that is asked for now."""
        return Asked(self._loop.time(), self._clock())

    def is_sure(self, asked: Asked) -> bool:
        """Whether a lease that was asked for then has certainly not run out. Any thread may ask."""
        return is_sure(asked, self._seconds, loop=self._loop.time(), wall=self._clock())

    async def keep_renewing(self) -> None:
        """Renew all of them, again and again; more often after a failure."""
        if self._standby is not None:
            self._standby.add(self)
        try:
            await self._keep_renewing()
        finally:
            if self._standby is not None:
                self._standby.discard(self)

    async def _keep_renewing(self) -> None:
        failures, since = 0, self._loop.time()
        while True:
            wait = self._seconds / 3
            soon = min(_LONGEST_RETRY, wait / 4)
            # From the question on: what the store has written late may be over soon, or already.
            await asyncio.sleep(soon if failures else max(since + wait - self._loop.time(), soon))
            since = self._loop.time()
            try:
                await self.renew({run.id: run.fence for run in self._runs.values()})
                failures = 0
            except Exception as problem:
                failures += 1
                if failures & (failures - 1) == 0:  # The first, the second, the fourth, ...
                    away = isinstance(problem, StoreUnavailable)
                    level = logging.WARNING if away else logging.ERROR
                    _log.log(level, "Leases cannot be renewed: %s", problem, exc_info=not away)

    async def renew(self, held: Mapping[str, int]) -> None:
        """Renew some, by id and fence. A run whose lease was lost is told, the others look for news."""
        if not held:
            return
        asked = self.asked()
        still = await answer_of(self._store.extend(held, until=asked.wall + self._seconds))
        for task_id, fence in held.items():
            if (run := self._runs.get(task_id)) is not None and run.fence == fence:
                if task_id in still:
                    run.asked = newer(run.asked, asked)
                    run.look_soon()
                else:
                    run.lose()

    # While the event loop is blocked

    def is_late(self) -> bool:
        """Whether a lease should have been renewed by now."""
        return bool(self._late(self.asked()))

    def _late(self, now: Asked) -> list[Leased]:
        return [
            run
            for run in list(self._runs.values())
            if is_late(run.asked, self._seconds, loop=now.loop, wall=now.wall)
        ]

    async def renew_by(self, store: LeaseStore) -> None:
        """Renew what is late by another store. What is lost meanwhile is noted when the event loop runs."""
        asked = self.asked()
        late = {run.id: run for run in self._late(asked)}
        if store.tasks is not None:
            held = {task_id: run.fence for task_id, run in late.items()}
            for task_id in await store.tasks.extend(held, until=asked.wall + self._seconds):
                late[task_id].asked = newer(late[task_id].asked, asked)
