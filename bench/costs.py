"""What calls that need a store cost: the figures that `bench.capacity` reckons with.

    python -m bench.costs [--turns 3] [--tasks 2000]

Each figure is the median over the turns. CPU time is that of the server process, which also runs the tasks,
and of all processes of Postgres; the client has another core. Prices are differences: a step is a task of
ten steps less an empty one, by ten; a sleep is a task that sleeps once less an empty one. The price of a task
includes one look at it; what further looks of the client cost is taken off. `alone` is a task of one step
with no other beside it: only its commits count, for its CPU time includes what an idle server does.
Sizes are those of the tables with their indexes, in a new store, and once more after the tables were packed.
Prints JSON.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import psycopg

from bench.process import cpu_seconds, cpu_seconds_of_ended_children
from bench.servers import ROOT, Running
from bench.tasks.copies import fill_postgres, fill_sqlite
from bench.tasks.serving import client, serving
from bench.tasks.stores import new_database, postgres, sqlite_file
from scripts.postgres import Postgres

_AT_ONCE: Final = 100
"""Clients at once. Each looks every 0.1 s, so about fifty tasks run at the same time."""
_STEPS: Final = 10
_TABLES: Final = ("ekiden_tasks", "ekiden_task_entries", "ekiden_rounds", "ekiden_round_steps")

Figures = dict[str, float]


@dataclass
class Meter:
    """What one store and its server have used so far."""

    server: Running
    database: Postgres | None
    connection: "psycopg.Connection[Any] | None"

    def read(self) -> Figures:
        found = {"server_us": cpu_seconds(self.server.pid) * 1e6}
        if self.database is not None and self.connection is not None:
            master, *children = self.database.processes()
            spent = cpu_seconds(master) + cpu_seconds_of_ended_children(master)
            found["postgres_us"] = (spent + sum(map(cpu_seconds, children))) * 1e6
            row = self.connection.execute(
                "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_wal_lsn() - '0/0'"
            ).fetchone()
            assert row is not None
            found |= {"commits": float(row[0]), "wal_bytes": float(row[1])}
        return found

    def per(self, count: int, work: Callable[[], Any]) -> tuple[Figures, Any]:
        """What each of so many costs, and what the client says."""
        before = self.read()
        said = work()
        return {name: (value - before[name]) / count for name, value in self.read().items()}, said


def less(one: Figures, other: Figures, times: float = 1.0) -> Figures:
    return {name: value - times * other[name] for name, value in one.items()}


def medians(turns: list[Figures]) -> Figures:
    return {name: median(turn[name] for turn in turns) for name in turns[0]}


class Measured:
    """The figures of one store, turn by turn."""

    def __init__(self, meter: Meter, tasks: int, looked_at: Path) -> None:
        self._meter = meter
        self._tasks = tasks
        self._looked_at = looked_at
        self.turns: dict[str, list[Figures]] = {}

    def turn(self) -> None:
        count = self._tasks
        look = self._client(10 * count, "looks", str(self._looked_at), str(10 * count))[0]
        empty = self._task("empty", {}, count, look)
        stairs = self._task("stairs", {"count": _STEPS}, max(count // 4, 100), look)
        nap = self._task("naps", {}, count, look)
        alone = self._task("stairs", {"count": 1}, 100, look, at_once=1)
        step = {name: value / _STEPS for name, value in less(stairs, empty).items()}
        asked = self._rounds("confirm", {"name": "Aiko"}, count)
        paid = self._rounds("pay", {"amount": 30}, count)
        figures = {"look": look, "task": empty, "step": step, "sleep": less(nap, empty), "alone": alone}
        figures |= {"two_rounds": asked, "step_of_a_round": less(paid, asked)}
        for name, each in figures.items():
            self.turns.setdefault(name, []).append(each)

    def _task(self, tool: str, arguments: Any, count: int, look: Figures, at_once: int = _AT_ONCE) -> Figures:
        options = (tool, json.dumps(arguments), str(count), str(at_once))
        figures, said = self._client(count, "patient", *options)
        return less(figures, look, said["looks"] / count - 1)

    def _rounds(self, tool: str, arguments: Any, count: int) -> Figures:
        options = (tool, json.dumps(arguments), str(count), str(_AT_ONCE))
        return self._client(count, "rounds", *options)[0]

    def _client(self, count: int, *arguments: str) -> tuple[Figures, Any]:
        return self._meter.per(count, lambda: client(self._meter.server, *arguments))


@contextmanager
def _store(name: str) -> Iterator[tuple[str, Postgres | None]]:
    if name == "sqlite":
        with sqlite_file() as url:
            yield url, None
    else:
        with postgres() as database:
            yield new_database(database), database


def _costs(name: str, turns: int, tasks: int) -> dict[str, Any]:
    with _store(name) as (url, database), TemporaryDirectory() as folder:
        with serving("--store", url) as server:
            client(server, "run", "empty", "1", "1")  # What is copied.
        ids = (fill_postgres if database else fill_sqlite)(url, 1000)
        looked_at = Path(folder) / "ids"
        looked_at.write_text(json.dumps(ids))
        connection = None if database is None else psycopg.connect(url, autocommit=True)
        with serving("--store", url) as server:
            measured = Measured(Meter(server, database, connection), tasks, looked_at)
            client(server, "patient", "stairs", '{"count": 3}', "300", str(_AT_ONCE))  # Warm.
            for turn in range(turns):
                measured.turn()
                print(f"{name} {turn + 1}/{turns}", file=sys.stderr)
            found: dict[str, Any] = {what: medians(each) for what, each in measured.turns.items()}
            if connection is not None:
                found["connections"] = _connections(connection)
        found["sizes"] = {tool: _sizes(name, tool, tasks) for tool in ("empty", "stairs", "pay")}
        if connection is not None:
            connection.close()
        return found


def _connections(connection: "psycopg.Connection[Any]") -> int:
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _sizes(name: str, tool: str, tasks: int) -> Figures:
    """Bytes per call in a new store, after five times as many calls of one tool as a turn has."""
    count = 5 * tasks
    arguments = {"empty": "{}", "stairs": '{"count": 1}', "pay": '{"amount": 30}'}[tool]
    how = "rounds" if tool == "pay" else "patient"
    with _store(name) as (url, database):
        with serving("--store", url) as server:
            client(server, how, tool, arguments, str(count), str(_AT_ONCE))
        if database is None:
            path = ROOT / url.removeprefix("sqlite:///")
            return {"file": path.stat().st_size / count}
        with psycopg.connect(url, autocommit=True) as connection:
            found = {f"{table}, as it is": size / count for table, size in _tables(connection).items()}
            connection.execute("VACUUM FULL")
            return found | {f"{table}, packed": size / count for table, size in _tables(connection).items()}


def _tables(connection: "psycopg.Connection[Any]") -> Figures:
    found: Figures = {}
    for table in _TABLES:
        row = connection.execute("SELECT pg_total_relation_size(%s::regclass)", (table,)).fetchone()
        assert row is not None
        found[table] = float(row[0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what calls that need a store cost.")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--store", choices=("sqlite", "postgres"), action="append")
    options = parser.parse_args()
    stores = options.store or ["sqlite", "postgres"]
    found = {name: _costs(name, options.turns, options.tasks) for name in stores}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
