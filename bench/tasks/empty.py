"""Tasks that do nothing, against FastMCP with its tasks extension.

FastMCP has its memory backend, and a Redis that a wheel brings.
"""

from dataclasses import dataclass, field
from statistics import median
from typing import Final

from bench.cells import Setup
from bench.measure import Plan
from bench.servers import CONTESTANTS, cores, running
from bench.tasks.serving import AT_ONCE, per_second
from bench.tasks.stores import redis, sqlite_file
from bench.verdict import Tell, Verdict, at_least, table

_TIMES_PEER: Final = 3.0


@dataclass
class EmptyTasks:
    """What was found: tasks per second, turn by turn."""

    per_second: dict[str, list[float]] = field(default_factory=dict)

    def verdicts(self) -> list[Verdict]:
        what = f"empty tasks, {AT_ONCE} at a time, on SQLite"
        ours = self.per_second["ekiden sqlite"]
        return [
            at_least(what, [a / b for a, b in zip(ours, theirs, strict=True)], f"x {peer}", _TIMES_PEER)
            for peer, theirs in self.per_second.items()
            if peer.startswith("fastmcp")
        ]

    def render(self) -> str:
        rows = [(name, f"{median(found):,.0f}") for name, found in self.per_second.items()]
        return (
            f"Tasks: created, run and read to their end over HTTP by one lean client, {AT_ONCE} at a time, "
            "wall time; each side on a core of its own.\n\n"
            + table(("server and store", "empty tasks per second"), rows)
        )


def measure_empty(plan: Plan, tell: Tell) -> EmptyTasks:
    """Measure the section."""
    found = EmptyTasks()
    with redis() as docket:
        for turn in range(plan.repeats):
            for name, setup in _contestants(docket):
                with sqlite_file() as store:
                    options = tuple(store if option == "FILE" else option for option in setup.options)
                    figure = _empty(Setup(setup.contestant, options), plan.calls)
                found.per_second.setdefault(name, []).append(figure)
                tell(f"tasks {turn + 1}/{plan.repeats} {name:24} {figure:8,.0f} per second")
    return found


def _contestants(docket: str | None) -> list[tuple[str, Setup]]:
    listed = [
        ("ekiden sqlite", Setup("ekiden", ("--store", "FILE"))),
        ("ekiden memory", Setup("ekiden", ("--store", "memory:"))),
    ]
    if CONTESTANTS["fastmcp-tasks"].exists:
        listed.append(("fastmcp memory", Setup("fastmcp-tasks", ("--docket", "memory://"))))
        if docket is not None:
            listed.append(("fastmcp redis", Setup("fastmcp-tasks", ("--docket", docket))))
    return listed


def _empty(setup: Setup, count: int) -> float:
    with running(setup, cores()[0]) as server, server.blamed():
        return per_second(server, "empty", count)
