"""What tasks cost that wait for an answer, and what one step's commit costs: on SQLite."""

import asyncio
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from bench.measure import Plan
from bench.process import cpu_seconds, rss_megabytes
from bench.script import run_script
from bench.tasks.serving import serving
from bench.tasks.stores import sqlite_file
from bench.verdict import Tell, Verdict, at_most

_WAITING: Final = 10_000
_IDLE_SECONDS: Final = 5.0
_COMMITS: Final = 3.0
_MOST_MB: Final = 50.0
_MOST_CPU: Final = 0.02
"""Of one core: a sweep every five seconds is allowed, work for each task is not."""


@dataclass
class Waiting:
    """What was found."""

    commits: list[float] = field(default_factory=list)
    """What a committed step takes, as a multiple of a raw commit."""
    megabytes: float = 0.0
    cpu: float = 0.0

    def verdicts(self) -> list[Verdict]:
        return [
            at_most("one step's commit", self.commits, "a raw commit", _COMMITS),
            Verdict(f"{_WAITING:,} waiting tasks, memory", f"{self.megabytes:.1f} MB",
                    f"at most {_MOST_MB:.0f} MB", self.megabytes <= _MOST_MB),
            Verdict(f"{_WAITING:,} waiting tasks, CPU", f"{self.cpu:.3f} of a core",
                    f"at most {_MOST_CPU:.2f}", self.cpu <= _MOST_CPU),
        ]  # fmt: skip

    def render(self) -> str:
        return (
            f"Waiting tasks: {_WAITING:,} are in a SQLite file when the server starts. Memory is what it "
            "takes more than with an empty file."
        )


def measure_waiting(plan: Plan, tell: Tell) -> Waiting:
    """Measure the section."""
    found = Waiting()
    with sqlite_file() as store:
        alone, _ = _idle(store)
        asyncio.run(_fill(store))
        with_tasks, found.cpu = _idle(store)
    found.megabytes = max(with_tasks - alone, 0.0)
    tell(f"tasks {_WAITING:,} waiting: {found.megabytes:.1f} MB, {found.cpu:.3f} of a core")
    commits = run_script("ekiden", "bench.commits", str(plan.repeats))
    found.commits = [ours / raw for ours, raw in zip(commits["ours"], commits["raw"], strict=True)]
    tell(f"tasks one step's commit {median(found.commits):.2f} x a raw one")
    return found


def _idle(store: str) -> tuple[float, float]:
    with serving("--store", store) as server:
        time.sleep(1.0)
        before = cpu_seconds(server.pid)
        time.sleep(_IDLE_SECONDS)
        return rss_megabytes(server.pid), (cpu_seconds(server.pid) - before) / _IDLE_SECONDS


async def _fill(store: str) -> None:
    from ekiden.stores.sqlite import SQLiteStore
    from ekiden.tasks.record import Question
    from ekiden.testing.task_contract import new_record

    opened = SQLiteStore(store.removeprefix("sqlite:///"))
    request = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": {}}}
    now = time.time()
    records = [
        new_record(
            f"waiting {number}",
            audience="bench",
            tool="waits",
            state="waiting",
            due=None,
            created=now,
            ttl=1e6,
            questions={"k.1": Question("k", 1, "digest", request)},
        )
        for number in range(_WAITING)
    ]
    await asyncio.gather(*(opened.tasks.insert(record, {}) for record in records))
    await opened.close()
