"""How many transactions that write a task takes on Postgres.

Only a transaction that writes gets an id, and ids are given one after the other: so they are counted by the
next id that Postgres would give, before and after.
"""

import time
from dataclasses import dataclass, field
from typing import Final

import psycopg

from bench.measure import Plan
from bench.servers import Running
from bench.tasks.serving import AT_ONCE, client, per_second, serving
from bench.tasks.stores import new_database, postgres
from bench.verdict import Tell, Verdict, table

_MOST: Final = 3.0
_TASKS: Final = 300
"""So many that what else is written meanwhile, by the sweep for one, is less than the last digit shown."""
_IDLE_SECONDS: Final = 6.0
_TITLES: Final = {
    "empty": "an empty task",
    "steps": "a task of one step",
    "naps": "a task with a short sleep",
}


@dataclass
class Writes:
    """What was found: transactions per task, by tool and by how many ran at once."""

    per_task: dict[tuple[str, int], float] = field(default_factory=dict)
    idle: float = 0.0
    """Per second, while no task runs."""

    def verdicts(self) -> list[Verdict]:
        stepping, napping = self.per_task["steps", 1], self.per_task["naps", 1]
        holds = round(stepping, 1) <= _MOST
        return [
            Verdict("writing transactions, task of one step, Postgres", f"{stepping:.1f}",
                    f"at most {_MOST:.0f}", holds),
            Verdict("writing transactions, task with a short sleep, Postgres", f"{napping:.1f}"),
        ]  # fmt: skip

    def render(self) -> str:
        rows = [
            (title, f"{self.per_task[tool, 1]:.1f}", f"{self.per_task[tool, AT_ONCE]:.1f}")
            for tool, title in _TITLES.items()
        ]
        return (
            "Writes: transactions of Postgres that write, from the call to the end of its task, less those "
            f"of a server without work ({self.idle:.1f} per second).\n\n"
            + table(("task", "one at a time", f"{AT_ONCE} at a time"), rows)
        )


def measure_writes(plan: Plan, tell: Tell) -> Writes:
    """Measure the section."""
    found = Writes()
    with postgres() as database:
        store = new_database(database)
        with serving("--store", store) as server, psycopg.connect(store, autocommit=True) as connection:
            per_second(server, "steps", AT_ONCE)  # Warm.
            found.idle = _idle(connection)
            for at_once in (1, AT_ONCE):
                for tool in _TITLES:
                    figure = _per_task(connection, server, tool, at_once, found.idle)
                    found.per_task[tool, at_once] = figure
                    tell(f"tasks {_TITLES[tool]}, {at_once} at a time: {figure:.2f} writing transactions")
    return found


def _per_task(
    connection: "psycopg.Connection[tuple[int]]", server: Running, tool: str, at_once: int, idle: float
) -> float:
    began, before = time.monotonic(), _next_id(connection)
    client(server, "run", tool, str(_TASKS), str(at_once))
    written = _next_id(connection) - before - idle * (time.monotonic() - began)
    return written / _TASKS


def _idle(connection: "psycopg.Connection[tuple[int]]") -> float:
    before = _next_id(connection)
    time.sleep(_IDLE_SECONDS)
    return (_next_id(connection) - before) / _IDLE_SECONDS


def _next_id(connection: "psycopg.Connection[tuple[int]]") -> int:
    row = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    assert row is not None
    return row[0]
