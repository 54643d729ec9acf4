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

from scripts.mutations import Mutant, count_of, mutants_of

SOURCE = Path("src/ekiden")
WORK = Path(".cache/mutants")
GOAL = 0.9
"""The share of mutants that must be caught."""
PROCESSES = 2
PATIENCE = 1800.0
"""Seconds for the tests of a stage."""
HANG = "a hang"
PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-x",
    "-m",
    "not slow",
    "-p",
    "no:cacheprovider",
    "--timeout=120",
)

TESTS = {
    "rounds": (
        "tests/rounds tests/laws",
        "tests/acceptance",
        "tests/simulation/test_seeds.py tests/server/rounds tests/server/steps",
        "tests/server",
    ),
    "server/rounds": (
        "tests/server/rounds",
        "tests/rounds tests/laws",
        "tests/acceptance tests/eras/test_push.py",
        "tests/server tests/workers/test_duplicates.py",
    ),
    "tasks": (
        "tests/stores/test_task_contract.py tests/tasks tests/server/tasks -k memory",
        "tests/stores/test_task_contract.py tests/tasks",
        "tests/server/tasks tests/acceptance",
    ),
    "stores/memory": ("tests/stores -k memory", "tests/tasks tests/sessions tests/server -k memory"),
    "stores/sqlite": ("tests/stores -k sqlite", "tests/tasks tests/sessions tests/stories tests/server"),
    "stores/postgres": ("tests/stores -k postgres", "tests/tasks tests/sessions tests/server -k postgres"),
    "stores": ("tests/stores", "tests/tasks tests/server/sealing tests/sessions tests/stories"),
}
"""The tests that concern a folder, in stages: where one fails, the next is not needed. Those that notice most
in the least time come first."""


class Bench:
    """A copy of the library for mutants to live in, one after the other, beside one that is whole."""

    def __init__(self, number: int) -> None:
        self._log = WORK / f"log-{number}"
        self._mutated, self._whole = (WORK / f"{kind}-{number}" for kind in ("mutated", "whole"))
        for copy in (self._mutated, self._whole):
            shutil.copytree(SOURCE, copy / SOURCE.name)
        self._sound = set[str]()
        """Tests that pass without a mutant."""

    def noticed_by(self, mutant: Mutant) -> str:
        """The test that notices a mutant; empty if none does."""
        place = self._mutated / mutant.path.relative_to(SOURCE.parent)
        original = place.read_text("utf-8")
        place.write_text(mutant.source, "utf-8")
        try:
            stages = TESTS[folder_of(mutant)]
            return next(filter(None, map(self._failed_by_mutant, stages)), "")
        finally:
            place.write_text(original, "utf-8")

    def _failed_by_mutant(self, stage: str) -> str:
        """The first test of a stage that fails because of the mutant, and not by chance or in any case."""
        others = list[str]()
        while failed := self._failed([*stage.split(), *(f"--deselect={test}" for test in others)]):
            if failed == HANG or (self._failed([failed]) and self._is_sound(failed)):
                return failed
            print(f"it fails without a mutant, too, or by chance: {failed}", flush=True)
            others.append(failed)
        return ""

    def _is_sound(self, test: str) -> bool:
        if test not in self._sound and not self._failed([test], self._whole):
            self._sound.add(test)
        return test in self._sound

    def _failed(self, tests: list[str], copy: Path | None = None) -> str:
        """The first test that fails; empty if none does.

        What tests leave running is ended with them: it is in their process group.
        """
        paths = {"PYTHONPATH": str((copy or self._mutated).resolve()), "PYTHONDONTWRITEBYTECODE": "1"}
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [*PYTEST, *tests],
                env={**os.environ, **paths},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                has_failed = process.wait(PATIENCE) != 0
            except subprocess.TimeoutExpired:
                return HANG
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if not has_failed:
            return ""
        lines = self._log.read_text("utf-8", "replace").splitlines()
        named = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        return named[0].split(" - ")[0].split(maxsplit=1)[1] if named else tests[0]


def folder_of(mutant: Mutant) -> str:
    """The folder of `TESTS` that a mutant is in."""
    parents = [parent.as_posix() for parent in mutant.path.relative_to(SOURCE).parents]
    return next(parent for parent in parents if parent in TESTS)


def drawn(count: int, seed: int, only: str) -> list[Mutant]:
    """A sample of all mutants, the same for the same seed and sources."""
    inside = {path for folder in TESTS for path in (SOURCE / folder).rglob("*.py")}
    paths = [path for path in sorted(inside) if only in str(path)]
    everything = [(path, number) for path in paths for number in range(count_of(path))]
    count = min(count, len(everything))
    print(f"{len(everything)} mutants in {len(paths)} modules; {count} are drawn, seed {seed}.", flush=True)
    chosen = random.Random(seed).sample(everything, count)
    return [mutant for path, number in chosen for mutant in mutants_of(path, {number})]


def judge(benches: "SimpleQueue[Bench]", mutant: Mutant) -> bool:
    """Whether a mutant is caught. What catches it is printed, or else its diff."""
    began, bench = time.monotonic(), benches.get()
    try:
        by = bench.noticed_by(mutant)
    finally:
        benches.put(bench)
    word = "caught  " if by else "SURVIVED"
    place = f"{mutant.path}:{mutant.line}"
    print(f"{word} {time.monotonic() - began:5.0f} s  {place}  {by or chr(10) + mutant.diff}", flush=True)
    return bool(by)


def main() -> int:
    """Print what became of each mutant; 1 if too many survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the path of the modules")
    options = parser.parse_args()
    mutants = drawn(options.count, options.seed, options.only)
    shutil.rmtree(WORK, ignore_errors=True)
    benches = SimpleQueue[Bench]()
    for number in range(PROCESSES):
        benches.put(Bench(number))
    with ThreadPoolExecutor(PROCESSES) as pool:
        caught = list(pool.map(lambda mutant: judge(benches, mutant), mutants))
    share = sum(caught) / len(mutants)
    print(f"\n{sum(caught)} of {len(mutants)} mutants were caught: {share:.0%}; the goal is {GOAL:.0%}.")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
