"""Run many seeds: `python -m tests.simulation.run --seeds 1000`; or look at one: `--mode tasks --seed 7`."""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.case import happen
from tests.simulation.faults import CRASHES, Setting, draw_setting
from tests.simulation.oracle import Violation, judge
from tests.simulation.programs import Program, generate
from tests.simulation.shrink import explain, shrunk

__all__ = ["MODES", "Tally", "case_of", "run_seed", "shown"]

MODES = ("rounds", "rounds", "rounds", "tasks", "parked", "push")
"""Where `all` seeds go, in turn: replay over a ledger has the most to get wrong."""
_MOST_SHOWN = 5
_CHUNK = 20


@dataclass
class Tally:
    """What a number of seeds came to."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, str, list[Violation]]] = field(default_factory=list)


def case_of(seed: int, mode: str) -> tuple[Program, Setting]:
    """The program and the world of a seed; `all` gives each seed a mode."""
    setting = draw_setting(seed, MODES[seed % len(MODES)] if mode == "all" else mode)
    return generate(seed, background=dict(setting.options).get("task") == "deferred"), setting


def run_seed(seed: int, mode: str, tally: Tally) -> None:
    """One seed, counted."""
    program, setting = case_of(seed, mode)
    happened = happen(seed, program, setting)
    world = happened.world
    tally.counts += Counter(
        programs=1,
        rounds=len(world.attempts),
        runs=len(world.runs),
        effects=len(world.effects),
        crashes=world.crashes,
        repeats=sum(kind in ("drop", "double", "leave") for kind in world.fired) + len(happened.forks),
        faults=sum(kind not in CRASHES for kind in world.fired),
    )
    if violations := judge(happened):
        tally.broken.append((seed, setting.mode, violations))


def _run_chunk(job: tuple[int, int, str]) -> Tally:
    start, end, mode = job
    tally = Tally()
    for seed in range(start, end):
        run_seed(seed, mode, tally)
    return tally


def _all(start: int, count: int, mode: str, processes: int) -> Iterator[Tally]:
    jobs = [(n, min(n + _CHUNK, start + count), mode) for n in range(start, start + count, _CHUNK)]
    if processes == 1:
        yield from map(_run_chunk, jobs)
        return
    with multiprocessing.Pool(processes) as pool:
        yield from pool.imap(_run_chunk, jobs)


def shown(seed: int, mode: str, law: str | None = None) -> str:
    """One seed in words, as small as it gets."""
    program, setting = case_of(seed, mode)
    violations = judge(happen(seed, program, setting))
    if not violations:
        return f"seed {seed} holds every law"
    program, setting = shrunk(seed, program, setting, law or violations[0].law)
    happened = happen(seed, program, setting)
    return explain(happened, judge(happened))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--mode", default="all", choices=("rounds", "parked", "push", "tasks", "all"))
    parser.add_argument("--seed", type=int, help="explain this one, shrunk")
    parser.add_argument("--law", help="shrink towards this law; list only seeds that break it")
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    if chosen.seed is not None:
        print(shown(chosen.seed, chosen.mode, chosen.law))
        return 0
    began, whole = time.perf_counter(), Tally()
    for tally in _all(chosen.start, chosen.seeds, chosen.mode, chosen.processes):
        whole.counts += tally.counts
        whole.broken += tally.broken
    return _report(whole, chosen.mode, chosen.law, time.perf_counter() - began)


def _report(whole: Tally, mode: str, law: str | None, seconds: float) -> int:
    print(", ".join(f"{count} {name}" for name, count in whole.counts.items()), f"in {seconds:.0f} s")
    laws = Counter(law for _, _, violations in whole.broken for law in {v.law for v in violations})
    print(f"{len(whole.broken)} seeds with violations", dict(laws.most_common()))
    listed = [(s, v) for s, _, v in whole.broken if law is None or law in {x.law for x in v}]
    for seed, violations in listed[:12]:
        print(f"  seed {seed}: {'; '.join(str(v)[:150] for v in violations)}")
    for seed, _ in listed[: _MOST_SHOWN if law is None else 0]:
        print("-" * 100)
        print(shown(seed, mode))
    return 1 if whole.broken else 0


if __name__ == "__main__":
    sys.exit(main())
