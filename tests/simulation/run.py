"""Run many seeds: `python -m tests.simulation.run --seeds 1000`; or look at one: `--mode tasks --seed 7`.

With `--store postgres` rounds and tasks run on a real Postgres, which is started for it.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from scripts.postgres import running_postgres
from tests.simulation import databases
from tests.simulation.case import happen
from tests.simulation.faults import CRASHES, DEPLOYS, Setting, draw_setting
from tests.simulation.oracle import Violation, judge
from tests.simulation.programs import Program, generate
from tests.simulation.shrink import explain, shrunk

__all__ = ["MODES", "Broken", "Tally", "case_of", "run_seed", "shown"]

MODES = ("rounds", "rounds", "rounds", "tasks", "parked", "push")
"""Where `all` seeds go, in turn: replay over a ledger has the most to get wrong."""
MODES_WITH_STORE = ("rounds", "tasks")
"""Where they go if they are to use one store."""
_MOST_SHOWN = 5
_CHUNK = 20


@dataclass
class Broken:
    """A seed that broke a law."""

    seed: int
    violations: list[Violation]
    found: str
    """The case as it was found."""


@dataclass
class Tally:
    """What a number of seeds came to."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[Broken] = field(default_factory=list)


def case_of(seed: int, mode: str, store: str = "") -> tuple[Program, Setting]:
    """The program and the world of a seed; `all` gives each seed a mode."""
    modes = MODES_WITH_STORE if store else MODES
    setting = draw_setting(seed, modes[seed % len(modes)] if mode == "all" else mode, store)
    return generate(seed, background=dict(setting.options).get("task") == "deferred"), setting


def run_seed(seed: int, mode: str, tally: Tally, store: str = "") -> None:
    """One seed, counted."""
    program, setting = case_of(seed, mode, store)
    happened = happen(seed, program, setting)
    world = happened.world
    tally.counts += Counter(
        programs=1,
        rounds=len(world.attempts),
        runs=len(world.runs),
        effects=len(world.effects),
        crashes=world.crashes,
        repeats=sum(kind in ("drop", "double", "leave") for kind in world.fired) + len(happened.forks),
        faults=sum(kind not in (*CRASHES, *DEPLOYS) for kind in world.fired),
        deploys=sum(kind in DEPLOYS for kind in world.fired),
    )
    if violations := judge(happened):
        tally.broken.append(Broken(seed, violations, explain(happened, violations)))


def _run_chunk(job: tuple[int, int, str, str]) -> Tally:
    start, end, mode, store = job
    tally = Tally()
    for seed in range(start, end):
        run_seed(seed, mode, tally, store)
    return tally


def _all(start: int, count: int, mode: str, store: str, server: str, processes: int) -> Iterator[Tally]:
    end = start + count
    jobs = [(n, min(n + _CHUNK, end), mode, store) for n in range(start, end, _CHUNK)]
    if processes == 1:
        yield from map(_run_chunk, jobs)
        return
    begin, about = (databases.begin, (server,)) if server else (None, ())
    with multiprocessing.Pool(processes, begin, about) as pool:
        yield from pool.imap(_run_chunk, jobs)


def shown(seed: int, mode: str, law: str | None = None, store: str = "", found: str = "") -> str:
    """One seed in words, as small as it gets; on a database it may not be found again."""
    program, setting = case_of(seed, mode, store)
    violations = judge(happen(seed, program, setting))
    if not violations:
        return found or f"seed {seed} holds every law"
    program, setting = shrunk(seed, program, setting, law or violations[0].law)
    happened = happen(seed, program, setting)
    violations = judge(happened)
    return explain(happened, violations) if violations or not found else found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--mode", default="all", choices=("rounds", "parked", "push", "tasks", "all"))
    parser.add_argument("--store", default="", choices=("", "memory", "sqlite", "postgres"))
    parser.add_argument("--seed", type=int, help="explain this one, shrunk")
    parser.add_argument("--law", help="shrink towards this law; list only seeds that break it")
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        server = ""
        if chosen.store == "postgres":
            server = stack.enter_context(running_postgres()).server_url
            stack.enter_context(databases.in_use(server))
        if chosen.seed is not None:
            print(shown(chosen.seed, chosen.mode, chosen.law, chosen.store))
            return 0
        return _run(chosen, server)


def _run(chosen: argparse.Namespace, server: str) -> int:
    began, whole = time.perf_counter(), Tally()
    for tally in _all(chosen.start, chosen.seeds, chosen.mode, chosen.store, server, chosen.processes):
        whole.counts += tally.counts
        whole.broken += tally.broken
    return _report(whole, chosen, time.perf_counter() - began)


def _report(whole: Tally, chosen: argparse.Namespace, seconds: float) -> int:
    law: str | None = chosen.law
    print(", ".join(f"{count} {name}" for name, count in whole.counts.items()), f"in {seconds:.0f} s")
    laws = Counter(law for broken in whole.broken for law in {v.law for v in broken.violations})
    print(f"{len(whole.broken)} seeds with violations", dict(laws.most_common()))
    listed = [each for each in whole.broken if law is None or law in {v.law for v in each.violations}]
    for each in listed[:12]:
        print(f"  seed {each.seed}: {'; '.join(str(v)[:150] for v in each.violations)}")
    for each in listed[: _MOST_SHOWN if law is None else 0]:
        print("-" * 100)
        print(shown(each.seed, chosen.mode, None, chosen.store, each.found))
    return 1 if whole.broken else 0


if __name__ == "__main__":
    sys.exit(main())
