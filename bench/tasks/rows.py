"""`tasks/get` where the store has few rows, and where it has very many.

The client looks at tasks by chance. What counts is CPU time, of the server and of all processes of Postgres:
it depends less than wall time on what else the machine does.
"""

import json
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from bench.failure import BenchFailure
from bench.measure import Plan
from bench.process import cpu_seconds
from bench.servers import Running
from bench.tasks.copies import fill_postgres, fill_sqlite
from bench.tasks.serving import client, serving
from bench.tasks.stores import new_database, postgres, sqlite_file
from bench.verdict import Tell, Verdict, at_most, table

_FEW: Final = 1000
_LOOKED_AT: Final = 1000
_LOOKS_PER_CALL: Final = 20
_MOST: Final = 1.25


@dataclass
class Rows:
    """What was found: microseconds of a look, by store and number of rows, turn by turn."""

    many: int
    cpu: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    waited: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """From the request to the answer, p50."""

    def verdicts(self) -> list[Verdict]:
        found: list[Verdict] = []
        for store in ("sqlite", "postgres"):
            pairs = zip(self.cpu[store, self.many], self.cpu[store, _FEW], strict=True)
            what = f"`tasks/get` with {self.many:,} rows, {store}"
            found.append(at_most(what, [many / few for many, few in pairs], f"that with {_FEW:,}", _MOST))
        return found

    def render(self) -> str:
        rows = [
            (store, f"{rows:,}", f"{median(found):.0f}", f"{median(self.waited[store, rows]):.0f}")
            for (store, rows), found in self.cpu.items()
        ]
        return (
            "Rows: `tasks/get` of tasks by chance, with few rows in the store and with many, in turns. CPU "
            "time of the server, and of the processes of Postgres.\n\n"
            + table(("store", "rows", "CPU us/request", "us to the answer, p50"), rows)
        )


def measure_rows(plan: Plan, tell: Tell) -> Rows:
    """Measure the section."""
    found = Rows(plan.rows)
    with sqlite_file() as few, sqlite_file() as many:
        stores = {_FEW: few, plan.rows: many}
        _compare(found, "sqlite", _filled(stores, fill_sqlite, tell), list, plan, tell)
    with postgres() as database:
        stores = {rows: new_database(database) for rows in (_FEW, plan.rows)}
        _compare(found, "postgres", _filled(stores, fill_postgres, tell), database.processes, plan, tell)
    return found


@dataclass(frozen=True)
class _Full:
    """A store that has its rows."""

    url: str
    looked_at: list[str]
    """The ids of some of its tasks."""


def _filled(stores: dict[int, str], fill: Callable[[str, int], list[str]], tell: Tell) -> dict[int, _Full]:
    filled: dict[int, _Full] = {}
    for rows, url in stores.items():
        with serving("--store", url) as server:
            client(server, "run", "empty", "1", "1")  # What is copied.
        filled[rows] = _Full(url, random.sample(fill(url, rows), _LOOKED_AT))
        tell(f"tasks {url.partition(':')[0]}: {rows:,} rows are there")
    return filled


def _compare(
    found: Rows,
    name: str,
    stores: dict[int, _Full],
    others: Callable[[], list[int]],
    plan: Plan,
    tell: Tell,
) -> None:
    """Look at both in turns; `others` are processes that work for the server, too."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        servers: dict[int, Running] = {}
        for rows, store in stores.items():
            servers[rows] = stack.enter_context(serving("--store", store.url))
            (folder / str(rows)).write_text(json.dumps(store.looked_at))
            _look(servers[rows], folder / str(rows), _LOOKED_AT, others)  # Warm.
        for turn in range(plan.repeats):
            order = list(servers.items())
            for rows, server in order if turn % 2 == 0 else reversed(order):
                cpu, waited = _look(server, folder / str(rows), plan.calls * _LOOKS_PER_CALL, others)
                found.cpu.setdefault((name, rows), []).append(cpu)
                found.waited.setdefault((name, rows), []).append(waited)
                tell(f"tasks {turn + 1}/{plan.repeats} tasks/get {name:8} {rows:9,} rows {cpu:6.0f} us")


def _look(server: Running, ids: Path, count: int, others: Callable[[], list[int]]) -> tuple[float, float]:
    before = _spent([server.pid, *others()])
    taken = client(server, "looks", str(ids), str(count))["seconds"]
    after = _spent([server.pid, *others()])
    spent = sum(seconds - before.get(process, 0.0) for process, seconds in after.items())
    if spent <= 0:
        raise BenchFailure(f"{count} looks are too few for the CPU clock")
    return spent / count * 1e6, median(taken) * 1e6


def _spent(processes: list[int]) -> dict[int, float]:
    return {process: cpu_seconds(process) for process in processes}
