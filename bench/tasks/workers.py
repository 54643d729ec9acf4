"""How much more two workers do than one, for a server that leaves its tasks to them: on Postgres."""

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from bench.measure import Plan
from bench.tasks.serving import AT_ONCE, per_second, serving, worker
from bench.tasks.stores import new_database, postgres
from bench.verdict import Tell, Verdict, at_least, spread, table

_TIMES_ONE: Final = 1.6
_CORES: Final = 4
"""Server, client and two workers need so many; Postgres needs some of them, too."""


@dataclass
class Workers:
    """What was found: tasks per second, by the number of workers, turn by turn."""

    per_second: dict[int, list[float]] = field(default_factory=lambda: {1: [], 2: []})

    def verdicts(self) -> list[Verdict]:
        what = "tasks of one step on Postgres, 2 workers"
        ratios = [two / one for one, two in zip(self.per_second[1], self.per_second[2], strict=True)]
        if _cores() >= _CORES:
            return [at_least(what, ratios, "x 1 worker", _TIMES_ONE)]
        return [Verdict(what, f"{spread(ratios)} x 1 worker", f"none with {_cores()} cores")]

    def render(self) -> str:
        rows = [(str(count), f"{median(found):,.0f}") for count, found in self.per_second.items()]
        return (
            f"Workers: a server that only serves, on its core, and workers wherever they fall. {AT_ONCE} "
            f"tasks of one step at a time. With fewer than {_CORES} cores they take each other's time, and "
            "the ratio is only reported.\n\n" + table(("workers", "tasks per second"), rows)
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def measure_workers(plan: Plan, tell: Tell) -> Workers:
    """Measure the section."""
    found = Workers()
    with postgres() as database:
        store = new_database(database)
        for turn in range(plan.repeats):
            for count, figures in found.per_second.items():
                figures.append(_with_workers(store, count, 2 * plan.calls))
                tell(f"tasks {turn + 1}/{plan.repeats} workers {count}: {figures[-1]:8,.0f} per second")
    return found


def _with_workers(store: str, count: int, tasks: int) -> float:
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(worker(store))
        server = stack.enter_context(serving("--store", store, "--no-tasks"))
        return per_second(server, "steps", tasks)
