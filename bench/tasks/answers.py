"""How soon a task that waits for an answer goes on."""

from dataclasses import dataclass, field
from statistics import median
from typing import Final

from bench.measure import Plan
from bench.tasks.serving import client, serving, worker
from bench.tasks.stores import new_database, postgres, sqlite_file
from bench.verdict import Tell, Verdict, spread, table

_MOST_MS: Final = {
    "sqlite, one process": 10.0,
    "sqlite, across processes": 100.0,
    "postgres, one process": 30.0,
}


@dataclass
class Answers:
    """What was found: milliseconds from `tasks/update` to the handler."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)

    def verdicts(self) -> list[Verdict]:
        return [
            Verdict(f"from `tasks/update` to the handler, {where}", f"{spread(values)} ms",
                    f"at most {_MOST_MS[where]:.0f} ms", median(values) <= _MOST_MS[where])
            for where, values in self.milliseconds.items()
            if where in _MOST_MS
        ]  # fmt: skip

    def render(self) -> str:
        rows = [(name, f"{median(found):.2f}") for name, found in self.milliseconds.items()]
        return table(("store", "ms from `tasks/update` to the handler, p50"), rows)


def measure_answers(plan: Plan, tell: Tell) -> Answers:
    """Measure the section."""
    count = max(plan.calls // 10, 10)
    found: dict[str, list[float]] = {}
    with sqlite_file() as store:
        found["sqlite, one process"] = _answered(count, "--store", store)
    with sqlite_file() as store, worker(store):
        found["sqlite, across processes"] = _answered(count, "--store", store, "--no-tasks")
    with postgres() as database:
        store = new_database(database)
        found["postgres, one process"] = _answered(count, "--store", store)
        with worker(store):
            found["postgres, across processes"] = _answered(count, "--store", store, "--no-tasks")
    for where, values in found.items():
        tell(f"tasks from tasks/update to the handler, {where}: {median(values):.2f} ms")
    return Answers(found)


def _answered(count: int, *options: str) -> list[float]:
    with serving(*options) as server:
        client(server, "answers", "5")  # Warm.
        return [seconds * 1e3 for seconds in client(server, "answers", str(count))["seconds"]]
