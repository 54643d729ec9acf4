"""How long it takes to forget very many expired tasks at once, and what others notice of it: on Postgres.

    python -m bench.forgetting [--tasks 1000000] [--probe-seconds 10] [--watch-seconds 150]

The tasks are of one step each. Beside them a server runs tasks of one step at a low rate, before, during and
after the call of the store's own `forget` in another process; the client notes how long each call took to
become a task, and each task to end. Then the tables are watched until autovacuum has taken the dead rows
away. Prints JSON.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable
from statistics import median, quantiles
from typing import Any, ClassVar, Final

import psycopg
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from bench.clients.task_client import Line, create, until
from bench.costs import Meter
from bench.exchange import PATH
from bench.servers import CONTESTANTS, ROOT, Running
from bench.tasks.copies import fill_postgres
from bench.tasks.serving import client, serving
from bench.tasks.stores import new_database, postgres

_LINES: Final = 4
_PAUSE_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 5.0
_MOST_SECONDS: Final = 900.0
_CONNECTION = psycopg.Connection[Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how very many tasks are forgotten.")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--probe-seconds", type=float, default=10.0)
    parser.add_argument("--watch-seconds", type=float, default=150.0)
    parser.add_argument("--forget", metavar="URL")
    options = parser.parse_args()
    if options.forget:
        print(json.dumps(asyncio.run(_forget(options.forget))))
        return
    with postgres() as database:
        url = new_database(database)
        with serving("--store", url) as server:
            client(server, "run", "steps", "1", "1")  # What is copied.
        _fill(url, options.tasks)
        with serving("--store", url) as server, psycopg.connect(url, autocommit=True) as connection:
            client(server, "run", "steps", "200", "20")  # Warm.
            meter = Meter(server, database, connection)
            print(json.dumps(asyncio.run(_measure(server, connection, meter, url, options)), indent=2))


def _fill(url: str, count: int) -> None:
    """Copies of the one task, with its journal, whose time has been over for half an hour."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        connection.execute("UPDATE ekiden_tasks SET expires = %s", (time.time() - 1800,))
        row = connection.execute("SELECT digest, key, entry FROM ekiden_task_entries").fetchone()
        assert row is not None
    ids = fill_postgres(url, count)
    names = ("task_id", *row)
    with psycopg.connect(url, autocommit=True) as connection:
        columns = SQL(", ").join(map(Identifier, names))
        with connection.cursor().copy(
            SQL("COPY ekiden_task_entries ({}) FROM STDIN").format(columns)
        ) as copy:
            for task_id in ids:
                copy.write_row((task_id, *row.values()))
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
    print(f"{count:,} tasks are there", file=sys.stderr)


async def _measure(
    server: Running, connection: _CONNECTION, meter: Meter, url: str, options: argparse.Namespace
) -> dict[str, Any]:
    found: dict[str, Any] = {"size before": _size(connection)}
    found["before"] = await _probe(server, asyncio.sleep(options.probe_seconds))
    command = [CONTESTANTS["ekiden"].interpreter(), "-m", "bench.forgetting", "--forget", url]
    before = meter.read()
    forgetting = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        found["while"] = await _probe(server, _ended(forgetting))
    finally:
        if forgetting.poll() is None:
            forgetting.kill()
        printed = forgetting.communicate()[0]
    found["forget"] = json.loads(printed)
    used = meter.read()
    found["postgres_us per task"] = (used["postgres_us"] - before["postgres_us"]) / options.tasks
    found["wal_bytes per task"] = (used["wal_bytes"] - before["wal_bytes"]) / options.tasks
    found["after"] = await _probe(server, asyncio.sleep(options.probe_seconds))
    found["vacuum"] = await _watch(connection, options.watch_seconds)
    found["postgres_us per task, with vacuum"] = (
        meter.read()["postgres_us"] - before["postgres_us"]
    ) / options.tasks
    found["size after"] = _size(connection)
    return found


async def _ended(process: "subprocess.Popen[str]") -> None:
    async with asyncio.timeout(_MOST_SECONDS):
        while process.poll() is None:
            await asyncio.sleep(0.1)


async def _probe(server: Running, work: Awaitable[Any]) -> dict[str, Any]:
    """Run tasks at a low rate until the work is done: milliseconds to the task's id, and to its end."""
    accepted: list[float] = []
    ended: list[float] = []

    async def one() -> None:
        line = Line("127.0.0.1", server.port, PATH)
        while True:
            began = time.perf_counter()
            task_id = await create(line, "steps")
            accepted.append((time.perf_counter() - began) * 1e3)
            await until(line, task_id, "completed")
            ended.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(_PAUSE_SECONDS)

    lines = [asyncio.create_task(one()) for _ in range(_LINES)]
    began = time.perf_counter()
    try:
        await work
    finally:
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "tasks": len(ended),
        "to its id": _spread(accepted),
        "to its end": _spread(ended),
    }


def _spread(milliseconds: list[float]) -> dict[str, float]:
    p99 = quantiles(milliseconds, n=100)[-1]
    return {"p50": median(milliseconds), "p99": p99, "most": max(milliseconds)}


async def _forget(url: str) -> dict[str, Any]:
    """Call the store's `forget`, and note what each of its statements takes."""
    from ekiden.stores.postgres.database import PostgresDatabase
    from ekiden.stores.postgres.tasks import PostgresTasks

    class Noting(PostgresTasks):
        taken: ClassVar[list[float]] = []

        async def _forget(self, before: float, audience: str | None) -> int:
            began = time.perf_counter()
            count = await super()._forget(before, audience)
            self.taken.append(time.perf_counter() - began)
            return count

    database = PostgresDatabase(url)
    tasks = Noting(database)
    await tasks.overdue(now=0.0, limit=1)  # The connection is open.
    began = time.perf_counter()
    removed = await tasks.forget(before=time.time())
    seconds = time.perf_counter() - began
    await tasks.close()
    await database.close()
    part = max(len(tasks.taken) // 10, 1)
    batches = {
        "p50 ms": median(tasks.taken) * 1e3,
        "first tenth p50 ms": median(tasks.taken[:part]) * 1e3,
        "last tenth p50 ms": median(tasks.taken[-part:]) * 1e3,
        "most ms": max(tasks.taken) * 1e3,
    }
    return {"removed": removed, "seconds": seconds, "per second": removed / seconds, "batches": batches}


async def _watch(connection: _CONNECTION, seconds: float) -> list[dict[str, Any]]:
    """Look at the dead rows until they are gone."""
    found: list[dict[str, Any]] = []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        row = connection.execute(
            "SELECT sum(n_dead_tup)::bigint, sum(autovacuum_count)::bigint,"
            " (SELECT count(*) FROM pg_stat_progress_vacuum) FROM pg_stat_user_tables"
            " WHERE relname IN ('ekiden_tasks', 'ekiden_task_entries')"
        ).fetchone()
        assert row is not None
        found.append(
            {"seconds": round(time.monotonic() - began), "dead": row[0], "vacuums": row[1], "running": row[2]}
        )
        if row[0] < 10_000 and row[2] == 0:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    return found


def _size(connection: _CONNECTION) -> dict[str, float]:
    row = connection.execute(
        "SELECT pg_table_size('ekiden_tasks') / 1e6, pg_indexes_size('ekiden_tasks') / 1e6,"
        " pg_total_relation_size('ekiden_task_entries') / 1e6"
    ).fetchone()
    assert row is not None
    return dict(zip(("tasks MB", "their indexes MB", "journals MB"), map(float, row), strict=True))


if __name__ == "__main__":
    main()
