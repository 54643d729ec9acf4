"""Hurt real workers on a real store: `python -m tests.chaos.run --store postgres --faults 300 --seed 7`.

Exit code 1 and a report if a law was broken; the notes and logs of all processes are kept then. What happens
depends on who is faster: the same seed draws the same faults, but they may not find the same again.
"""

import argparse
import asyncio
import contextlib
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from scripts.postgres import Postgres, running_postgres
from tests.chaos.clients import Clients
from tests.chaos.faults import Database, Faults, File
from tests.chaos.fleet import Disturbance, Fleet, running_fleet
from tests.chaos.judge import Evidence, Verdict, judge, read_notes

__all__ = ["Plan", "Report", "happen"]

_BEAT_SECONDS = 0.05
_STALLED_SECONDS = 0.5
"""A machine on which nobody runs for this long is too busy to be held to times."""
_PAGE = 500


@dataclass(frozen=True)
class Plan:
    """How much harm is done to how many."""

    store: str
    faults: int
    seed: int
    lease: float = 2.0
    servers: int = 2
    workers: int = 3
    pause: float = 0.8
    most_open: int = 16
    poison_seconds: float = 20.0
    most_poison: int = 1000
    patience: float = 90.0
    """Seconds after the last fault within which every task must have come to its end."""


@dataclass
class Report:
    """What happened, and what it was held to be."""

    plan: Plan
    verdict: Verdict
    faults: dict[str, int]
    tasks: int
    unanswered: int
    seconds: float
    settled: float

    def __str__(self) -> str:
        return (
            f"{self.plan.store}, seed {self.plan.seed}: {sum(self.faults.values())} faults {self.faults}\n"
            f"{self.tasks} tasks acknowledged, {self.unanswered} calls without a reply, {self.seconds:.0f} s,"
            f" the last end {self.settled:.1f} s after the last fault\n{self.verdict.figures()}"
        )


async def happen(plan: Plan, folder: Path, postgres: Postgres | None = None) -> Report:
    """Let everything happen, and judge."""
    began, chance = time.monotonic(), random.Random(plan.seed)
    async with _store(plan, folder, postgres) as (url, store, victim):
        async with running_fleet(folder, url, plan.servers, plan.workers, plan.lease) as fleet:
            clients = Clients(fleet, store, chance, plan.most_open, plan.poison_seconds, plan.most_poison)
            faults = Faults(fleet, victim, chance, plan.lease, plan.pause)
            async with _beside(
                clients.look(), _watch_machine(fleet), victim.watch(lambda at: _slow(fleet, at))
            ):
                feeding = [asyncio.create_task(clients.feed()) for _ in range(plan.servers)]
                await faults.happen(plan.faults)
                hurt = time.monotonic()
                clients.is_feeding = False
                await asyncio.gather(*feeding)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(plan.patience):
                        while clients.open():
                            await asyncio.sleep(_BEAT_SECONDS)
                settled = time.monotonic() - hurt
        verdict = judge(await _evidence(plan, store, clients, fleet))
    tasks, seconds = len(clients.started), time.monotonic() - began
    return Report(plan, verdict, dict(faults.counts), tasks, clients.unanswered, seconds, settled)


@asynccontextmanager
async def _store(
    plan: Plan, folder: Path, postgres: Postgres | None
) -> AsyncGenerator[tuple[str, Any, Database | File], None]:
    if plan.store == "sqlite":
        path = folder / "tasks.db"
        file = SQLiteStore(path)
        await file.migrate()
        try:
            yield f"sqlite:///{path}", file, File(path)
        finally:
            await file.close()
        return
    assert postgres is not None
    url = postgres.new_database()
    database = PostgresStore(url)
    await database.migrate()
    try:
        yield url, database, Database(postgres, urlsplit(url).path[1:], database)
    finally:
        await database.close()


@asynccontextmanager
async def _beside(*work: Any) -> AsyncGenerator[None, None]:
    """Have something done as long as the block lasts. What it raises is raised."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


async def _watch_machine(fleet: Fleet) -> None:
    last = time.monotonic()
    while True:
        await asyncio.sleep(_BEAT_SECONDS)
        now = time.monotonic()
        if now - last > _STALLED_SECONDS:
            fleet.disturbances.append(Disturbance("machine stalled", None, last, now))
        last = now


def _slow(fleet: Fleet, at: float) -> Disturbance:
    made = Disturbance("store slow", None, at)
    fleet.disturbances.append(made)
    return made


async def _evidence(plan: Plan, store: Any, clients: Clients, fleet: Fleet) -> Evidence:
    rows: dict[str, Any] = dict.fromkeys(clients.started)
    after = None
    while page := await store.tasks.listing(after=after, limit=_PAGE):
        rows |= {row.id: row for row in page}
        after = (page[-1].created, page[-1].id)
    journals = {
        task_id: {
            key[2:]: entry.value
            for key, entry in (await store.tasks.entries(task_id)).items()
            if entry.kind == "step"
        }
        for task_id, row in rows.items()
        if row is not None
    }
    evidence = Evidence(
        plan.lease, clients.started, rows, journals, fleet.disturbances, slow_stops=fleet.slow_stops
    )
    fleet.disturbances += read_notes(fleet.notes, evidence)
    return evidence


def _run(plan: Plan, postgres: Postgres | None) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="ekiden-chaos-"))
    report = asyncio.run(happen(plan, folder, postgres))
    print(report, flush=True)
    if report.verdict.is_good:
        shutil.rmtree(folder)
    else:
        print(f"the notes and logs of all processes are in {folder}")
    return report.verdict.is_good


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres"), action="append")
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.8, help="seconds between two faults, on average")
    parser.add_argument("--sample", action="store_true", help="fewer tasks at once, and poison soon")
    options = parser.parse_args()
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # The database is taken away on purpose here.
    seed = random.randrange(10**6) if options.seed is None else options.seed
    is_good = True
    for store in options.store or ("sqlite", "postgres"):
        plan = Plan(store, options.faults, seed, workers=options.workers, pause=options.pause)
        if options.sample:
            plan = replace(plan, most_open=10, poison_seconds=3.0, most_poison=1)
        with contextlib.ExitStack() as stack:
            postgres = stack.enter_context(running_postgres()) if store == "postgres" else None
            is_good = _run(plan, postgres) and is_good
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
