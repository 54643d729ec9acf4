"""The section on clients: ekiden's against the official one, and how well one client fills a server."""

from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.cells import FEW, Setup
from bench.measure import Plan
from bench.script import run_client
from bench.servers import Running, cores, running
from bench.verdict import Tell, Verdict, at_most, table

_SEQUENTIAL: Final = 0.40
"""A call takes at most this part of the official client's time, on the same server."""
_PAIR: Final = 0.15
"""A call of ten rounds takes at most this part of the official client's time on the official server."""
_ROUNDS: Final = 10
_AT_ONCE: Final = 100
_OURS: Final = "ekiden"
_THEIRS: Final = "mcp"


@dataclass(frozen=True)
class Clients:
    """What was found: median seconds of a call, by client, turn by turn."""

    sequential: dict[str, list[float]]
    pair: dict[str, list[float]]
    busy: list[float]
    """The part of a core that the server used while one client made many calls at once."""
    per_second: list[float]

    def verdicts(self) -> list[Verdict]:
        crowd = f"{median(self.busy):.0%} of the server's core, {median(self.per_second):,.0f} calls/s"
        return [
            at_most("client: `call_tool` p50", _ratios(self.sequential), "the official client", _SEQUENTIAL),
            at_most(f"client: a call of {_ROUNDS} rounds", _ratios(self.pair), "the official pair", _PAIR),
            Verdict(f"client: {_AT_ONCE} calls at once", crowd),
        ]

    def render(self) -> str:
        rows = [
            (name, f"{median(self.sequential[name]) * 1e3:.2f}", f"{median(self.pair[name]) * 1e3:.1f}")
            for name in (_OURS, _THEIRS)
        ]
        return (
            "Clients: one process on the core of the load, calls one after the other, wall time, ours and "
            "theirs in turns with fresh client processes. `call_tool` goes to ekiden's server for both; the "
            f"call of {_ROUNDS} rounds to each one's own server.\n\n"
            + table(("client", "`call_tool` p50 ms", f"call of {_ROUNDS} rounds ms"), rows)
        )


def _ratios(taken: dict[str, list[float]]) -> list[float]:
    return [ours / theirs for ours, theirs in zip(taken[_OURS], taken[_THEIRS], strict=True)]


def measure_clients(plan: Plan, tell: Tell) -> Clients:
    """Measure the section."""
    found = Clients({_OURS: [], _THEIRS: []}, {_OURS: [], _THEIRS: []}, [], [])
    options = ("--tools", str(FEW))
    core = cores()[0]
    with running(Setup(_OURS, options), core) as ours, running(Setup(_THEIRS, options), core) as theirs:
        for turn in range(plan.repeats):
            for name, own in ((_OURS, ours), (_THEIRS, theirs)):
                found.sequential[name].append(_median_seconds(name, ours, 0, plan.calls))
                found.pair[name].append(_median_seconds(name, own, _ROUNDS, max(5, plan.calls // 10)))
                figures = f"{found.sequential[name][-1] * 1e3:8.2f} ms {found.pair[name][-1] * 1e3:8.1f} ms"
                tell(f"client {turn + 1}/{plan.repeats} {name:8} a call, {_ROUNDS} rounds {figures}")
            _crowd(found, ours, plan.calls * 10)
    return found


def _median_seconds(name: str, server: Running, rounds: int, calls: int) -> float:
    taken: list[float] = run_client(name, server, "--rounds", str(rounds), "--calls", str(calls))["taken"][
        str(rounds)
    ]
    return median(taken)


def _crowd(found: Clients, server: Running, calls: int) -> None:
    work = ("--calls", str(calls), "--at-once", str(_AT_ONCE), "--server", str(server.pid))
    told = run_client(_OURS, server, *work)
    found.busy.append(told["server_busy"])
    found.per_second.append(calls / told["seconds"])
