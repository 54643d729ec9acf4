"""How much a load needs: a model of a few lines, fed with measured costs.

    python -m bench.capacity --calls-per-day 100000000 --tasks 0.02
    python -m bench.capacity --show-costs

It multiplies and adds, and rounds up. It knows nothing of networks, of tools that wait for others, or of
machines with faster cores: measure your own (`python -m bench.costs`), and give its figures by `--cost
NAME=VALUE` or in a JSON file by `--costs`. The store is Postgres, and only if the load needs one.
"""

import argparse
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.verdict import table

_DAY: Final = 86_400.0


@dataclass(frozen=True)
class Cost:
    """One measured figure."""

    name: str
    value: float
    what: str
    source: str


_RESULTS: Final = "make bench, on the machine of the other costs"
_COSTS: Final = "bench.costs"
_WRITES: Final = "bench.run --only tasks:writes"
_CODE: Final = "by construction"

COSTS: Final = (
    Cost("call_us", 49.0, "a call: CPU of the server", f"{_RESULTS}, A"),
    Cost("ask_us", 140.7, "a first round that asks", f"{_RESULTS}, B"),
    Cost("answer_us", 132.9, "a round with an answer", f"{_RESULTS}, C"),
    Cost("round_look_us", 496.0, "the look into the store at the begin of such a round", _COSTS),
    Cost("round_step_us", 2720.0, "a round that runs a step, more than one that does not", _COSTS),
    Cost("task_us", 955.0, "a task without steps, made, run and looked at once", _COSTS),
    Cost("step_us", 90.3, "a step of a task", _COSTS),
    Cost("sleep_us", 195.0, "a sleep of a task", _COSTS),
    Cost("look_us", 386.0, "a `tasks/get`", _COSTS),
    Cost("postgres_round_look_us", 125.0, "the same in Postgres: the look of a round", _COSTS),
    Cost("postgres_round_step_us", 1290.0, "a round that runs a step", _COSTS),
    Cost("postgres_task_us", 448.0, "a task without steps", _COSTS),
    Cost("postgres_step_us", 29.5, "a step of a task", _COSTS),
    Cost("postgres_sleep_us", 218.0, "a sleep of a task", _COSTS),
    Cost("postgres_look_us", 89.0, "a `tasks/get`", _COSTS),
    Cost("postgres_forget_us", 39.0, "to forget a task, vacuum included", "bench.forgetting"),
    Cost("task_commits", 2.0, "commits of a task without steps, if it shares none", _WRITES),
    Cost("step_commits", 1.0, "of a step of a task", _WRITES),
    Cost("sleep_commits", 3.0, "of a sleep of a task", _WRITES),
    Cost("round_commits", 3.0, "of a round that runs a step", _COSTS),
    Cost("task_wal", 3500.0, "bytes of WAL of a task without steps", _COSTS),
    Cost("step_wal", 640.0, "of a step of a task", _COSTS),
    Cost("sleep_wal", 3930.0, "of a sleep of a task", _COSTS),
    Cost("round_wal", 1590.0, "of a round that runs a step", _COSTS),
    Cost("forget_wal", 1276.0, "to forget a task", "bench.forgetting"),
    Cost("task_bytes", 2430.0, "bytes on disk of a task, with indexes and dead rows", _COSTS),
    Cost("step_bytes", 328.0, "of a step of a task", _COSTS),
    Cost("round_bytes", 850.0, "of a round that runs a step", _COSTS),
    Cost("connections", 18.0, "connections that a process opens at most", _CODE),
    Cost("concurrency", 50.0, "tasks that a process runs at once", "TaskLimits"),
)
Costs = Mapping[str, float]


def _option(default: float, help_: str) -> Any:
    return field(default=default, metadata={"help": help_})


@dataclass(frozen=True)
class Load:
    """What comes in."""

    calls_per_second: float = _option(0.0, "calls per second, on average")
    peak: float = _option(3.0, "how much more it is at the busiest time")
    asks: float = _option(0.1, "share of the calls that ask")
    rounds: float = _option(2.0, "rounds of such a call, the first included")
    recorded: float = _option(0.0, "share of the rounds with answers that run a step, or are once=True")
    tasks: float = _option(0.0, "share of the calls that become tasks")
    steps: float = _option(3.0, "steps of a task")
    sleeps: float = _option(0.0, "sleeps, or waits for an answer, of a task")
    asleep: float = _option(3600.0, "seconds of each of these")
    runs: float = _option(5.0, "seconds that a task takes besides")
    poll: float = _option(5.0, "seconds between two looks of a client at its task")
    tool_us: float = _option(0.0, "CPU of your own code, in each call, round and task, in microseconds")
    argument_bytes: float = _option(500.0, "bytes of the arguments of a task")
    result_bytes: float = _option(1000.0, "bytes of a result that is kept")
    value_bytes: float = _option(200.0, "bytes of what a step returns")
    retention_hours: float = _option(25.0, "hours that a task is kept: ttl_seconds and keep_seconds")
    round_hours: float = _option(0.3, "hours that a recorded round is kept: answer_seconds, and some minutes")


@dataclass(frozen=True)
class Limits:
    """What there is."""

    cores: float = _option(8.0, "cores of a machine for servers and workers; a process uses one")
    busy: float = _option(0.6, "part of its time that a core may be busy at the peak")
    database_cores: float = _option(16.0, "cores of a Postgres")
    database_connections: float = _option(500.0, "connections that a Postgres takes (its own default: 100)")
    database_commits: float = _option(2800.0, "commits per second that its disk takes")
    database_gigabytes: float = _option(1000.0, "gigabytes of its disk")


@dataclass(frozen=True)
class Share:
    """What of a limit of one Postgres is used."""

    name: str
    used: float
    limit: float

    @property
    def part(self) -> float:
        return self.used / self.limit


@dataclass(frozen=True)
class Need:
    """What a load needs at its peak."""

    calls: float
    requests: float
    running: float
    asleep: float
    looks: float
    servers: int
    workers: int
    machines: int
    wal_megabytes: float
    gigabytes_per_day: float
    shares: tuple[Share, ...]
    """Empty if no store is needed."""

    @property
    def bottleneck(self) -> Share | None:
        """Which limit of Postgres is reached first."""
        return max(self.shares, key=lambda share: share.part, default=None)

    @property
    def databases(self) -> int:
        return 0 if self.bottleneck is None else max(1, math.ceil(self.bottleneck.part))


@dataclass(frozen=True)
class _Rates:
    """What happens in a second at the peak."""

    calls: float
    asking: float
    answered: float
    recorded: float
    tasks: float
    looks: float
    needs_store: bool


def _rates(load: Load) -> _Rates:
    calls = load.calls_per_second * load.peak
    asking, tasks = calls * load.asks, calls * load.tasks
    answered = asking * max(load.rounds - 1, 0.0)
    looks = tasks * max(1.0, (load.runs + load.sleeps * load.asleep) / load.poll)
    recorded = answered * load.recorded
    return _Rates(calls, asking, answered, recorded, tasks, looks, tasks > 0 or recorded > 0)


def needed(load: Load, limits: Limits, costs: Costs) -> Need:
    """What the load needs."""
    rates = _rates(load)
    steps, sleeps = rates.tasks * load.steps, rates.tasks * load.sleeps
    running = rates.tasks * load.runs
    servers = math.ceil(_served(rates, load, costs) / 1e6 / limits.busy)
    busy = rates.tasks * (costs["task_us"] + load.tool_us * (1 + load.sleeps))
    busy += steps * costs["step_us"] + sleeps * costs["sleep_us"]
    workers = max(math.ceil(busy / 1e6 / limits.busy), math.ceil(running / costs["concurrency"]))
    processes = max(1, servers) + workers
    of_tasks, of_rounds = (each * rates.calls / load.peak * _DAY / 1e9 for each in _stored(load, costs))
    kept = (of_tasks * load.retention_hours + of_rounds * load.round_hours) / 24
    shares: tuple[Share, ...] = ()
    if rates.needs_store:
        shares = (
            Share("connections", processes * costs["connections"], limits.database_connections),
            Share("cores", _database_us(rates, load, costs) / 1e6, limits.database_cores * limits.busy),
            Share("commits per second", _commits(rates, load, costs, "commits"), limits.database_commits),
            Share("gigabytes", kept, limits.database_gigabytes),
        )
    return Need(
        calls=rates.calls,
        requests=rates.calls + rates.answered + rates.looks,
        running=running,
        asleep=sleeps * load.asleep,
        looks=rates.looks,
        servers=max(1, servers),
        workers=workers,
        machines=max(1, math.ceil(processes / limits.cores)),
        wal_megabytes=(_commits(rates, load, costs, "wal") + rates.tasks * costs["forget_wal"]) / 1e6,
        gigabytes_per_day=of_tasks + of_rounds,
        shares=shares,
    )


def _served(rates: _Rates, load: Load, costs: Costs) -> float:
    """Microseconds of the servers: all but what the first look at a task and its run cost."""
    answer = costs["answer_us"] + (costs["round_look_us"] if rates.needs_store else 0.0) + load.tool_us
    return (
        (rates.calls - rates.asking - rates.tasks) * (costs["call_us"] + load.tool_us)
        + rates.asking * (costs["ask_us"] + load.tool_us)
        + rates.answered * answer
        + rates.recorded * costs["round_step_us"]
        + (rates.looks - rates.tasks) * costs["look_us"]
    )


def _database_us(rates: _Rates, load: Load, costs: Costs) -> float:
    task = costs["postgres_task_us"] + costs["postgres_forget_us"]
    task += load.steps * costs["postgres_step_us"] + load.sleeps * costs["postgres_sleep_us"]
    return (
        rates.tasks * task
        + (rates.looks - rates.tasks) * costs["postgres_look_us"]
        + rates.answered * costs["postgres_round_look_us"]
        + rates.recorded * costs["postgres_round_step_us"]
    )


def _commits(rates: _Rates, load: Load, costs: Costs, what: str) -> float:
    """Commits, or bytes of WAL."""
    task = costs[f"task_{what}"] + load.steps * costs[f"step_{what}"] + load.sleeps * costs[f"sleep_{what}"]
    own = load.argument_bytes + load.result_bytes + load.steps * load.value_bytes if what == "wal" else 0.0
    return rates.tasks * (task + own) + rates.recorded * costs[f"round_{what}"]


def _stored(load: Load, costs: Costs) -> tuple[float, float]:
    """Bytes on disk per call: of tasks, and of recorded rounds."""
    task = costs["task_bytes"] + load.argument_bytes + load.result_bytes
    task += load.steps * (costs["step_bytes"] + load.value_bytes)
    recorded = load.asks * max(load.rounds - 1, 0.0) * load.recorded
    return load.tasks * task, recorded * (costs["round_bytes"] + load.result_bytes)


def render(need: Need, limits: Limits) -> str:
    """The answer as a table."""
    rows = [
        ("calls per second, at the peak", f"{need.calls:,.0f}", ""),
        ("requests, with rounds and looks", f"{need.requests:,.0f}", ""),
        ("processes that serve", f"{need.servers:,}", ""),
        ("processes that run tasks", f"{need.workers:,}", ""),
        (f"machines of {limits.cores:.0f} cores", f"{need.machines:,}", ""),
    ]
    if not need.shares:
        rows.append(("Postgres", "none", "not needed"))
        return table(("what", "needed", "of the limit"), rows)
    rows += [
        ("tasks that run at once", f"{need.running:,.0f}", ""),
        ("tasks that sleep or wait", f"{need.asleep:,.0f}", ""),
        ("`tasks/get` per second", f"{need.looks:,.0f}", ""),
    ]
    rows += [
        (f"Postgres: {share.name}", f"{share.used:,.0f}" if share.used >= 10 else f"{share.used:.1f}",
         f"{share.part:.0%} of {share.limit:,.4g}")
        for share in need.shares
    ]  # fmt: skip
    rows += [
        ("Postgres: WAL, MB per second", f"{need.wal_megabytes:.1f}", ""),
        ("disk per day, GB", f"{need.gigabytes_per_day:,.1f}", ""),
    ]
    assert need.bottleneck is not None
    rows.append(("databases", f"{need.databases}", ""))
    rows.append(("first bottleneck", need.bottleneck.name, f"{need.bottleneck.part:.0%}"))
    return table(("what", "needed", "of the limit"), rows)


def _costs(file: Path | None, changes: Sequence[str]) -> dict[str, float]:
    known = {cost.name: cost.value for cost in COSTS}
    given: dict[str, Any] = {} if file is None else json.loads(file.read_text())
    given |= dict(change.split("=", 1) for change in changes)
    if unknown := set(given) - set(known):
        raise SystemExit(f"unknown costs: {', '.join(sorted(unknown))}; --show-costs lists them")
    return known | {name: float(value) for name, value in given.items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="How much a load needs.")
    parser.add_argument("--calls-per-day", type=float, help="instead of --calls-per-second")
    for kind in (Load, Limits):
        group = parser.add_argument_group(kind.__name__.lower(), kind.__doc__)
        for each in dataclasses.fields(kind):
            name = f"--{each.name.replace('_', '-')}"
            help_ = f"{each.metadata['help']} (%(default)g)"
            group.add_argument(name, type=float, default=each.default, help=help_, metavar="N")
    parser.add_argument("--costs", type=Path, help="a JSON object of costs by their names")
    parser.add_argument("--cost", action="append", default=[], metavar="NAME=VALUE", help="one other cost")
    parser.add_argument("--show-costs", action="store_true", help="print the costs, and where they come from")
    return parser


def answer(arguments: Sequence[str] | None = None) -> str:
    """What the program prints."""
    options = _parser().parse_args(arguments)
    costs = _costs(options.costs, options.cost)
    if options.show_costs:
        rows = [(cost.name, f"{costs[cost.name]:,.4g}", cost.what, cost.source) for cost in COSTS]
        return table(("cost", "value", "of what", "from"), rows)
    load, limits = (
        kind(**{each.name: getattr(options, each.name) for each in dataclasses.fields(kind)})
        for kind in (Load, Limits)
    )
    assert isinstance(load, Load)
    assert isinstance(limits, Limits)
    if options.calls_per_day is not None:
        load = dataclasses.replace(load, calls_per_second=options.calls_per_day / _DAY)
    return render(needed(load, limits, costs), limits)


def main() -> None:
    print(answer())


if __name__ == "__main__":
    main()
