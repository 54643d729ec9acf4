"""What goes wrong, drawn from a seed: to one process at a time, or to the store and so to all of them."""

import asyncio
import contextlib
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ekiden import StoreUnavailable
from ekiden.stores.postgres import PostgresStore
from scripts.postgres import Postgres
from tests.chaos.fleet import Disturbance, Fleet, Slot

__all__ = ["Database", "Faults", "File", "Trouble"]

_SLOW_SECONDS = 0.25
"""A store that is silent for longer than this may cost leases. A process frozen in a commit locks a file."""

_RECOVERY_SECONDS = 60.0
_LOOK_SECONDS = 0.02


@dataclass
class Trouble:
    """How often each kind of fault comes, and how long it lasts, in leases."""

    weight: int
    least: float = 0.0
    most: float = 0.0


OF_PROCESSES = {
    "kill": Trouble(12),
    "freeze": Trouble(10, 0.2, 2.0),
    "terminate": Trouble(6),
    "block": Trouble(2, 1.3, 1.3),
}
OF_NETWORKS = {"cut off": Trouble(6, 0.3, 2.0)}
OF_DATABASES = {
    "database frozen": Trouble(1, 1.1, 2.0),
    "database restarted": Trouble(1, 0.1, 0.5),
    "database read-only": Trouble(1, 0.5, 2.0),
}


class Database:
    """What can be done to a Postgres."""

    troubles: ClassVar = {**OF_PROCESSES, **OF_NETWORKS, **OF_DATABASES}

    def __init__(self, postgres: Postgres, name: str, store: PostgresStore) -> None:
        self._postgres = postgres
        self._name = name
        self._store = store

    async def suffer(self, kind: str, seconds: float) -> None:
        """Let it be away for so long."""
        begin, end = self._ways()[kind]
        await asyncio.to_thread(begin)
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(end)

    def _ways(self) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
        server, name = self._postgres, self._name
        return {
            "database frozen": (server.freeze, server.thaw),
            "database restarted": (server.stop, server.start),
            "database read-only": (
                lambda: server.set_read_only(name, is_on=True),
                lambda: server.set_read_only(name, is_on=False),
            ),
        }

    async def watch(self, disturbed: Callable[[float], Disturbance]) -> None:
        """Note when it is slow without our doing, for as long as that lasts."""
        while True:
            asked = time.monotonic()
            with contextlib.suppress(StoreUnavailable):
                await self._store.tasks.load("")
            if time.monotonic() - asked > _SLOW_SECONDS:
                disturbed(asked).ended = time.monotonic()
            await asyncio.sleep(_SLOW_SECONDS / 5)


class File:
    """What can be done to a SQLite file: nothing, but who is frozen in the middle of a commit locks it."""

    troubles: ClassVar = OF_PROCESSES

    def __init__(self, path: Path) -> None:
        self._path = path

    async def suffer(self, kind: str, seconds: float) -> None:
        """Nothing can be done to a file."""
        raise AssertionError(kind)

    async def watch(self, disturbed: Callable[[float], Disturbance]) -> None:
        """Note when it cannot be written, for as long as that lasts."""
        while True:
            asked = time.monotonic()
            await asyncio.to_thread(self._write)
            if time.monotonic() - asked > _SLOW_SECONDS:
                disturbed(asked).ended = time.monotonic()
            await asyncio.sleep(_SLOW_SECONDS / 5)

    def _write(self) -> None:
        with sqlite3.connect(self._path, timeout=30.0, isolation_level=None) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        connection.close()


@dataclass
class Faults:
    """Does harm, one thing after another, and many at the same time."""

    fleet: Fleet
    store: Database | File
    chance: random.Random
    lease: float
    pause: float
    """Seconds between two faults, on average."""
    counts: Counter[str] = field(default_factory=Counter)
    _outage: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def happen(self, count: int) -> None:
        """So many faults; returns when the last one is over."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            for _ in range(count):
                await asyncio.sleep(self.chance.uniform(0.5, 1.5) * self.pause)
                await self._recovered()
                under_way = {task for task in under_way if not _is_done(task)}
                under_way.add(asyncio.create_task(self._one()))
        finally:
            await asyncio.gather(*under_way)

    async def _recovered(self) -> None:
        """Wait until nearly all are at work again. On a busy machine that may take longer than a pause."""
        async with asyncio.timeout(_RECOVERY_SECONDS):
            while len(self.fleet.up()) < len(self.fleet.slots) - 1:
                await asyncio.sleep(_LOOK_SECONDS)

    async def _one(self) -> None:
        troubles = self.store.troubles
        kind = self.chance.choices(list(troubles), [trouble.weight for trouble in troubles.values()])[0]
        seconds = self.lease * self.chance.uniform(troubles[kind].least, troubles[kind].most)
        self.counts[kind] += 1
        if kind in OF_DATABASES:
            async with self._outage:
                made = self.fleet.disturbed(kind, None)
                await self.store.suffer(kind, seconds)
                made.ended = time.monotonic()
        else:
            await self._strike(kind, self.chance.choice(self.fleet.up()), seconds)

    async def _strike(self, kind: str, slot: Slot, seconds: float) -> None:
        fleet = self.fleet
        if kind == "kill":
            fleet.kill(slot)
            return
        ways: dict[str, Callable[[], Awaitable[None]]] = {
            "freeze": lambda: fleet.freeze(slot, seconds),
            "terminate": lambda: fleet.terminate(slot),
            "block": lambda: fleet.block(slot, seconds),
            "cut off": lambda: fleet.cut_off(slot, seconds),
        }
        await ways[kind]()


def _is_done(task: asyncio.Task[None]) -> bool:
    if task.done():
        task.result()
    return task.done()
