"""What goes wrong meanwhile: workers are killed, the database restarts, keys are rotated."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ekiden.server.sealing.keys import new_key
from scripts.postgres import Postgres

__all__ = ["Trouble", "write_keys"]

KILL_SECONDS = 12.0
RESTART_SECONDS = 35.0
ROTATE_SECONDS = 10.0
"""How often each of them happens."""
KEPT_KEYS = 20
"""Keys that still open: as long as a slow call may take."""
AWAY_SECONDS = 0.5
"""How long the database stays away."""
AFTER_SECONDS = 10.0
"""How long what was done can be felt: a lease and a half, and the time that a worker takes to start."""


@dataclass
class Trouble:
    """Does harm to a server, but for one of its workers: whose memory is watched."""

    supervisor: psutil.Process
    postgres: Postgres
    keys_file: Path
    keys: list[str]
    chance: random.Random
    spared: int
    events: list[tuple[float, float, str]] = field(default_factory=list)
    """When each began and ended, and what it was."""

    @property
    def counts(self) -> Counter[str]:
        """How often what happened."""
        return Counter(kind for _, _, kind in self.events)

    def is_disturbed(self) -> bool:
        """Whether something can be felt right now."""
        return any(
            ended + AFTER_SECONDS > time.monotonic() for _, ended, kind in self.events if kind != "rotate"
        )

    def is_excused(self, began: float, again: float) -> bool:
        """Whether a step that began then may have begun again: its worker died, or the store was away."""
        return any(
            start < again and began < ended + AFTER_SECONDS
            for start, ended, kind in self.events
            if kind != "rotate"
        )

    async def happen(self, stop: asyncio.Event) -> None:
        """Do harm until it is over."""
        ways = {self._kill: KILL_SECONDS, self._restart: RESTART_SECONDS, self._rotate: ROTATE_SECONDS}
        async with asyncio.TaskGroup() as group:
            for way, seconds in ways.items():
                group.create_task(self._again_and_again(way, seconds, stop))

    async def _again_and_again(
        self, way: Callable[[], Awaitable[None]], seconds: float, stop: asyncio.Event
    ) -> None:
        while True:
            try:
                async with asyncio.timeout(seconds):
                    await stop.wait()
                    return
            except TimeoutError:
                await way()

    def workers(self) -> list[int]:
        """The processes that serve."""
        return [child.pid for child in self.supervisor.children()]

    async def _kill(self) -> None:
        victims = [pid for pid in self.workers() if pid != self.spared]
        if victims:
            began = time.monotonic()
            os.kill(self.chance.choice(victims), signal.SIGKILL)
            self.events.append((began, time.monotonic(), "kill"))

    async def _restart(self) -> None:
        # It can be felt from now on, and until it is over.
        place, began = len(self.events), time.monotonic()
        self.events.append((began, float("inf"), "restart"))
        await asyncio.to_thread(self.postgres.stop)
        await asyncio.sleep(AWAY_SECONDS)
        await asyncio.to_thread(self.postgres.start)
        self.events[place] = (began, time.monotonic(), "restart")

    async def _rotate(self) -> None:
        """A new key seals, and the one before opens. Every other time nobody is told."""
        began = time.monotonic()
        self.keys.insert(0, new_key())
        write_keys(self.keys_file, self.keys[:KEPT_KEYS])
        if len(self.keys) % 2:
            self.supervisor.send_signal(signal.SIGHUP)
        self.events.append((began, time.monotonic(), "rotate"))


def write_keys(path: Path, keys: list[str]) -> None:
    """Replace the file in one move."""
    fresh = path.with_suffix(".new")
    fresh.touch(0o600)
    fresh.write_text("\n".join(keys) + "\n")
    fresh.replace(path)
