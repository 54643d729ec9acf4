"""Many tasks that sleep until the same moment: how late the last of them goes on."""

from dataclasses import dataclass, field
from statistics import median
from typing import Final

from bench.measure import Plan
from bench.tasks.serving import client, serving
from bench.tasks.stores import new_database, postgres, sqlite_file
from bench.verdict import Tell, Verdict, spread, table

_SLEEPERS: Final = 1000
_SECONDS: Final = 25
"""From the first call to the moment: all must be asleep by then."""
_MOST_SECONDS: Final = 2.0


@dataclass
class Sleepers:
    """What was found: how many seconds late each went on, run by run."""

    late: dict[str, list[list[float]]] = field(default_factory=dict)

    def verdicts(self) -> list[Verdict]:
        found: list[Verdict] = []
        for store, runs in self.late.items():
            last = [max(run) for run in runs]
            what = f"{_SLEEPERS:,} sleepers due at once, {store}: the last"
            holds = median(last) <= _MOST_SECONDS
            found.append(Verdict(what, f"{spread(last)} s late", f"at most {_MOST_SECONDS:.0f} s", holds))
        return found

    def render(self) -> str:
        rows = [
            (store, f"{median(max(run) for run in runs):.2f}", f"{median(median(run) for run in runs):.2f}")
            for store, runs in self.late.items()
        ]
        return f"Sleepers: {_SLEEPERS:,} tasks of one server sleep until the same moment.\n\n" + table(
            ("store", "the last goes on, s late", "the middle one"), rows
        )


def measure_sleepers(plan: Plan, tell: Tell) -> Sleepers:
    """Measure the section."""
    found = Sleepers()
    runs = max(plan.repeats // 3, 1)  # A run takes half a minute.
    for _ in range(runs):
        with sqlite_file() as store:
            _add(found, "sqlite", store, tell)
    with postgres() as database:
        for _ in range(runs):
            _add(found, "postgres", new_database(database), tell)
    return found


def _add(found: Sleepers, name: str, store: str, tell: Tell) -> None:
    with serving("--store", store) as server:
        late: list[float] = client(server, "sleepers", str(_SLEEPERS), str(_SECONDS))["late"]
    found.late.setdefault(name, []).append(late)
    tell(f"tasks {_SLEEPERS:,} sleepers {name:8} the last {max(late):.2f} s late, p50 {median(late):.2f} s")
