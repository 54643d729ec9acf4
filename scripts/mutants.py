"""Break the engine in small ways, one at a time, and see whether the tests notice.

A sample of the mutants is drawn by a seed. For each one, a copy of the library gets the mutated module, and
the tests that concern it run against the copy until one fails. A mutant whose tests fail, or hang, is caught.
Why no tool of others does this: docs/decisions/0012-mutants-are-made-here.md.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from scripts.mutations import Mutant, mutants_of

SOURCE = Path("src/ekiden")
WORK = Path(".cache/mutants")
GOAL = 0.9
"""The share of mutants that must be caught."""
PROCESSES = 2

LAWS = "tests/rounds tests/laws tests/acceptance tests/server"
TESTS = {
    "rounds": f"{LAWS} tests/simulation/test_seeds.py",
    "server/rounds": f"{LAWS} tests/workers/test_duplicates.py tests/eras/test_push.py",
    "tasks": "tests/tasks tests/server/tasks tests/stores/test_task_contract.py tests/acceptance",
    "stores": "tests/stores tests/tasks tests/server/sealing",
}
"""The tests that concern a folder. They stop at the first failure, so those that notice most come first."""


class Copies:
    """Copies of the library for mutants to live in, one for each that is tested at the same time."""

    def __init__(self) -> None:
        shutil.rmtree(WORK, ignore_errors=True)
        self._free = SimpleQueue[Path]()
        for number in range(PROCESSES):
            shutil.copytree(SOURCE, WORK / str(number) / SOURCE.name)
            self._free.put(WORK / str(number))

    def fails(self, mutant: Mutant | None, tests: str, patience: float) -> bool:
        """Whether the tests fail with a mutant, or without any."""
        copy = self._free.get()
        try:
            if mutant is None:
                return _fails(copy, tests, patience)
            place = copy / mutant.path.relative_to(SOURCE.parent)
            original = place.read_text("utf-8")
            place.write_text(mutant.source, "utf-8")
            try:
                return _fails(copy, tests, patience)
            finally:
                place.write_text(original, "utf-8")
        finally:
            self._free.put(copy)


def _fails(copy: Path, tests: str, patience: float) -> bool:
    """Run tests against a copy. What they leave running is ended with them: it is in their process group."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(copy.resolve()), "PYTHONDONTWRITEBYTECODE": "1"}
    with (copy / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *tests.split()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return process.wait(patience) != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def folder_of(mutant: Mutant) -> str:
    """The folder of `TESTS` that a mutant is in."""
    inside = mutant.path.relative_to(SOURCE).as_posix()
    return next(folder for folder in TESTS if inside.startswith(f"{folder}/"))


def drawn(count: int, seed: int, only: str) -> list[Mutant]:
    """A sample of all mutants, the same for the same seed and sources."""
    paths = [
        path for folder in TESTS for path in sorted((SOURCE / folder).rglob("*.py")) if only in str(path)
    ]
    everything = [mutant for path in paths for mutant in mutants_of(path)]
    count = min(count, len(everything))
    print(f"{len(everything)} mutants in {len(paths)} modules; {count} are drawn, seed {seed}.", flush=True)
    return random.Random(seed).sample(everything, count)


def checked(copies: Copies, folder: str) -> float:
    """The seconds that a mutant of a folder may take. Without any mutant its tests must pass."""
    began = time.monotonic()
    if copies.fails(None, TESTS[folder], 1800):
        sys.exit(f"The tests of {folder} fail without a mutant: look at {WORK}/*/log.")
    taken = time.monotonic() - began
    print(f"{folder}: its tests take {taken:.0f} s", flush=True)
    return 60 + 2 * taken


def judge(copies: Copies, mutant: Mutant, patience: float) -> bool:
    """Whether a mutant is caught."""
    began = time.monotonic()
    caught = copies.fails(mutant, TESTS[folder_of(mutant)], patience)
    word = "caught  " if caught else "SURVIVED"
    print(f"{word} {time.monotonic() - began:5.0f} s  {mutant.path}:{mutant.line}", flush=True)
    return caught


def main() -> int:
    """Print what became of each mutant, and the diffs of those that survived; 1 if too many did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the path of the modules")
    options = parser.parse_args()
    mutants = drawn(options.count, options.seed, options.only)
    copies = Copies()
    with ThreadPoolExecutor(PROCESSES) as pool:
        folders = sorted({folder_of(mutant) for mutant in mutants})
        patience = dict(zip(folders, pool.map(lambda folder: checked(copies, folder), folders), strict=True))
        caught = list(pool.map(lambda mutant: judge(copies, mutant, patience[folder_of(mutant)]), mutants))
    for mutant, was_caught in zip(mutants, caught, strict=True):
        if not was_caught:
            print(f"\nsurvived: {mutant.path}:{mutant.line}\n{mutant.diff}")
    share = sum(caught) / len(mutants)
    print(f"\n{sum(caught)} of {len(mutants)} mutants were caught: {share:.0%}; the goal is {GOAL:.0%}.")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
