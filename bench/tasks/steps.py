"""Tasks of one step, against DBOS on the same kind of database."""

from dataclasses import dataclass, field
from statistics import median
from typing import Final

from bench.measure import Plan
from bench.script import run_script
from bench.servers import cores
from bench.tasks.serving import AT_ONCE, per_second, serving
from bench.tasks.stores import new_database, postgres, sqlite_file
from bench.verdict import Tell, Verdict, at_least, table

_TIMES_DBOS: Final = {"Postgres": 5.0, "SQLite": 10.0}
_COMMITS: Final = 1000
_POSTGRES, _DBOS_POSTGRES = "ekiden postgres", "dbos postgres"
_SQLITE, _DBOS_SQLITE, _RAW = "ekiden sqlite", "dbos sqlite", "raw SQLite commits"


@dataclass
class Steps:
    """What was found: tasks, workflows or commits per second, turn by turn."""

    per_second: dict[str, list[float]] = field(default_factory=dict)

    def verdicts(self) -> list[Verdict]:
        return [
            at_least(
                f"tasks of one step, {AT_ONCE} at a time, on {where}",
                self._ratios(ours, theirs),
                "x DBOS",
                _TIMES_DBOS[where],
            )
            for where, ours, theirs in (
                ("Postgres", _POSTGRES, _DBOS_POSTGRES),
                ("SQLite", _SQLITE, _DBOS_SQLITE),
            )
        ]

    def _ratios(self, ours: str, theirs: str) -> list[float]:
        pairs = zip(self.per_second[ours], self.per_second[theirs], strict=True)
        return [one / other for one, other in pairs]

    def render(self) -> str:
        rows = [(name, f"{median(found):,.0f}") for name, found in self.per_second.items()]
        return (
            f"Tasks of one step: {AT_ONCE} at a time, wall time. Ours go over HTTP, as the empty ones do; "
            "DBOS runs its workflows in process, on the core that our server has in its turn. Both wait for "
            "the disk, and each has a database of its own: in one Postgres, or in a SQLite file. A raw "
            "commit is one row to a SQLite file (WAL, synchronous=FULL), one after the other: it shows how "
            "fast the disk is.\n\n" + table(("what", "per second"), rows)
        )


def measure_steps(plan: Plan, tell: Tell) -> Steps:
    """Measure the section: ours and the others in turns."""
    found = Steps()
    with postgres() as database:
        store, theirs = new_database(database), database.new_database()
        for turn in range(plan.repeats):
            figures = {_POSTGRES: _ours(store, 2 * plan.calls), _DBOS_POSTGRES: _dbos(theirs, plan.calls)}
            figures |= _on_sqlite(plan)
            for name, figure in figures.items():
                found.per_second.setdefault(name, []).append(figure)
                tell(f"tasks of one step {turn + 1}/{plan.repeats} {name:20} {figure:8,.0f} per second")
    return found


def _ours(store: str, count: int) -> float:
    with serving("--store", store) as server:
        return per_second(server, "steps", count)


def _on_sqlite(plan: Plan) -> dict[str, float]:
    with sqlite_file() as store:
        ours = _ours(store, 2 * plan.calls)
    with sqlite_file() as store:
        theirs = _dbos(store, plan.calls)
    return {_SQLITE: ours, _DBOS_SQLITE: theirs, _RAW: _raw()}


def _dbos(url: str, count: int) -> float:
    script = ("dbos", "bench.clients.dbos_workflows", url, str(count), str(AT_ONCE))
    figure: float = run_script(*script, core=cores()[0])["per_second"]
    return figure


def _raw() -> float:
    figure: float = run_script("ekiden", "bench.raw_commits", str(_COMMITS))["per_second"]
    return figure
