"""Break the engine in small ways, one at a time, and see whether the tests notice.

A sample of the mutants is drawn by a seed. The tests that concern any of them are collected once. Each mutant
is judged in a fork of the process that has done so: there the functions of its module get the mutated code,
and the tests that concern it run until one fails. Processes that tests start get it, too, from a copy of the
library. A mutant whose tests fail, or hang, is caught.
Why no tool of others does this: docs/decisions/0012-mutants-are-made-here.md.
"""

import argparse
import contextlib
import gc
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

from scripts.mutations import Mutant, count_of, mutants_of

SOURCE = Path("src/ekiden")
WORK = Path(".cache/mutants")
GOAL = 0.9
"""The share of mutants that must be caught."""
PROCESSES = 2
OPTIONS = ("-q", "-m", "not slow", "-p", "no:cacheprovider", "--timeout=120", "--capture=sys")
PATIENCE = 300.0
"""Seconds for one test, where pytest cannot end it after those that it gives each."""


class Stage(NamedTuple):
    """Tests that are run together: those of files and folders that have a word in their name."""

    paths: str
    word: str = ""


TESTS = {
    "rounds": (
        Stage("tests/rounds tests/laws"),
        Stage("tests/acceptance tests/simulation/test_seeds.py tests/server"),
        Stage("tests/eras/test_push.py tests/stories tests/telemetry"),
    ),
    "server/rounds": (
        Stage("tests/server/rounds tests/rounds tests/laws"),
        Stage("tests/acceptance tests/eras/test_push.py tests/server tests/workers/test_duplicates.py"),
        Stage("tests/hostile/test_remembered_rounds.py tests/hostile/test_shares.py"),
        Stage("tests/hostile/test_circles.py"),
        Stage("tests/stories tests/telemetry"),
        Stage("tests/pages/people tests/workers/test_people.py"),
    ),
    "tasks": (
        Stage("tests/tasks/test_moves.py tests/tasks/test_queue.py tests/tasks/test_states.py"),
        Stage("tests/stores/test_task_contract.py tests/tasks tests/server/tasks", "memory"),
        Stage("tests/stores/test_task_contract.py tests/tasks tests/server/tasks tests/acceptance"),
        Stage("tests/stories tests/telemetry tests/pages/people/test_tasks.py"),
    ),
    "stores/memory": (
        Stage("tests/stores", "memory"),
        Stage("tests/tasks tests/sessions tests/stories tests/server", "memory"),
    ),
    "stores/sqlite": (
        Stage("tests/stores", "sqlite"),
        Stage("tests/tasks tests/sessions tests/stories tests/server", "sqlite"),
        Stage("tests/stores tests/bus"),
    ),
    "stores/postgres": (
        Stage("tests/stores", "postgres"),
        Stage("tests/tasks tests/sessions tests/stories tests/server", "postgres"),
        Stage("tests/stores tests/bus"),
    ),
    "stores": (
        Stage("tests/stores"),
        Stage("tests/tasks tests/server/sealing tests/sessions tests/stories"),
    ),
}
"""The tests that concern a folder, in stages. They stop at the first failure, so those that notice most in
the least time come first."""


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


# In a fork


def mutate(mutant: Mutant) -> None:
    """Give the functions of a module that is imported the code of a mutant."""
    before = list(_functions(compile(mutant.path.read_text("utf-8"), "before", "exec")))
    after = list(_functions(compile(mutant.source, str(mutant.path.resolve()), "exec")))
    codes = {(old.co_qualname, old.co_firstlineno): new for old, new in zip(before, after, strict=True)}
    gc.unfreeze()  # What is frozen is not listed.
    for each in gc.get_objects():
        if type(each) is FunctionType and Path(each.__code__.co_filename) == mutant.path.resolve():
            code = codes.get((each.__code__.co_qualname, each.__code__.co_firstlineno))
            if code is not None:
                each.__code__ = code


def _functions(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module and of its classes, but not those inside functions: they come with them."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            if part.co_flags & 0x2:  # It has fast locals: it is not the body of a class.
                yield part
            else:
                yield from _functions(part)


def in_fork(log: Path, work: Callable[[Callable[[str], None]], str]) -> str:
    """What this work says that is done in a process of its own. What it leaves running is ended with it.

    It notes each thing that it begins. If it hangs or ends the process, that says which it was in.
    """
    says, said = os.pipe()
    noted = log.with_suffix(".begun")
    noted.write_text("", "utf-8")
    process = os.fork()
    if not process:
        os.close(says)
        os.setsid()
        with log.open("wb") as file:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
        os.write(said, (work(lambda name: _note(noted, name)) or " ").encode())
        os._exit(0)
    os.close(said)
    begun, deadline = "", time.monotonic() + PATIENCE
    while not os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if (name := noted.read_text("utf-8")) != begun:
            begun, deadline = name, time.monotonic() + PATIENCE
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    with os.fdopen(says, "rb") as file:
        words = file.read().decode() or noted.read_text("utf-8")
    if not words:
        raise RuntimeError(f"nothing was begun: see {log}")
    return words.strip()


def _note(place: Path, name: str) -> None:
    """Write a name so that no reader sees half of it."""
    half = place.with_suffix(".half")
    half.write_text(name, "utf-8")
    half.replace(place)


class Judge:
    """A plugin of pytest. In place of the tests it runs mutants against them."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self._mutants = mutants
        self.caught = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge all mutants, some at a time."""
        shutil.rmtree(WORK, ignore_errors=True)
        free = []
        for number in range(PROCESSES):
            shutil.copytree(SOURCE, WORK / str(number) / SOURCE.name)
            free.append(WORK / str(number))
        judging = dict[int, Path]()
        for mutant in self._mutants:
            if not free:
                free.append(self._ended(judging))
            copy = free.pop()
            process = os.fork()
            if not process:
                status = 2
                try:
                    status = Case(session, copy, mutant).decide()
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            judging[process] = copy
        while judging:
            self._ended(judging)
        return True

    def _ended(self, judging: dict[int, Path]) -> Path:
        process, status = os.wait()
        self.caught += os.waitstatus_to_exitcode(status) == 0
        return judging.pop(process)


class Case:
    """One mutant, its tests and its copy of the library."""

    def __init__(self, session: pytest.Session, copy: Path, mutant: Mutant) -> None:
        self._session = session
        self._copy = copy
        self._mutant = mutant

    def decide(self) -> int:
        """Say whether the mutant is caught, and by which test; or its diff. 0 if it is caught."""
        began = time.monotonic()
        place = self._copy / self._mutant.path.relative_to(SOURCE.parent)
        original = place.read_text("utf-8")
        place.write_text(self._mutant.source, "utf-8")
        try:
            by = self._noticed_by()
        finally:
            place.write_text(original, "utf-8")
        word, more = ("caught  ", f"  {by}") if by else ("SURVIVED", f"\n{self._mutant.diff}")
        where = f"{self._mutant.path}:{self._mutant.line}"
        print(f"{word} {time.monotonic() - began:5.0f} s  {where}{more}", flush=True)
        return 0 if by else 1

    def _noticed_by(self) -> str:
        """The test that fails because of the mutant; not by chance, and not without it."""
        tests = self._tests()
        while failed := self._failed(tests):
            alone = [test for test in tests if test.nodeid == failed]
            if self._failed(alone) and not self._failed(alone, mutated=False):
                return failed
            print(f"it fails without a mutant, too, or by chance: {failed}", flush=True)
            tests = [test for test in tests if test.nodeid != failed]
        return ""

    def _tests(self) -> list[pytest.Item]:
        chosen = dict[pytest.Item, None]()
        for paths, word in TESTS[folder_of(self._mutant)]:
            for path in paths.split():
                inside = (f"{path}/", f"{path}::")
                chosen |= {
                    test: None
                    for test in self._session.items
                    if test.nodeid.startswith(inside) and word in test.nodeid.lower()
                }
        return list(chosen)

    def _failed(self, tests: Sequence[pytest.Item], *, mutated: bool = True) -> str:
        log = self._copy.with_suffix(".log")
        return in_fork(log, lambda begin: self._run(tests, begin, mutated=mutated)) if tests else ""

    def _run(self, tests: Sequence[pytest.Item], begin: Callable[[str], None], *, mutated: bool) -> str:
        """The first test that fails; empty if none does."""
        if mutated:
            mutate(self._mutant)
            os.environ["PYTHONPATH"] = str(self._copy.resolve())
        failed = ""
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            begin(test.nodeid)
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            if self._session.testsfailed:
                failed = test.nodeid
                break
        with contextlib.suppress(BaseException):  # A fixture may be what fails.
            self._session._setupstate.teardown_exact(None)  # noqa: SLF001
        return failed


def main() -> int:
    """Print what became of each mutant; 1 if too many survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the path of the modules")
    options = parser.parse_args()
    mutants = drawn(options.count, options.seed, options.only)
    paths = {path for mutant in mutants for stage in TESTS[folder_of(mutant)] for path in stage.paths.split()}
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    judge = Judge(mutants)
    pytest.main([*OPTIONS, *sorted(paths)], plugins=[judge])
    share = judge.caught / len(mutants)
    print(f"\n{judge.caught} of {len(mutants)} mutants were caught: {share:.0%}; the goal is {GOAL:.0%}.")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
