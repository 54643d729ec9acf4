"""The scripts behind `make mutants` and `make coverage`."""

import ast
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts import covered, mutants
from scripts.mutations import count_of, mutants_of

MODULE = '''
_log = 1

class Box:
    limit = 1

    def put(self, thing: int, most: int = 1) -> bool:
        """Keep a thing."""
        assert thing
        if thing < self.limit and not self.full:
            _log.info("kept %s", thing)
            self.things.append(thing)
            self.count = len(self.things) + 1
            return self.count == 0
        raise ValueError(f"{thing + 1} does not fit")
'''


def test_every_mutant_changes_one_thing_that_a_test_could_notice(tmp_path: Path) -> None:
    path = tmp_path / "box.py"
    path.write_text(MODULE)
    changes = []
    for mutant in mutants_of(path, range(count_of(path))):
        ast.parse(mutant.source)
        lines = [line for line in mutant.diff.splitlines()[2:] if line[0] in "+-"]
        changes.append(" | ".join(line[1:].strip() for line in lines))
    condition, kept = "if thing < self.limit and (not self.full):", "self.count = len(self.things) + 1"
    assert sorted(changes) == sorted(
        [
            f"{condition} | if not (thing < self.limit and (not self.full)):",
            f"{condition} | if thing < self.limit or not self.full:",
            f"{condition} | if thing <= self.limit and (not self.full):",
            f"{condition} | if thing < self.limit and self.full:",
            "self.things.append(thing) | pass",
            f"{kept} | pass",
            f"{kept} | self.count = len(self.things) - 1",
            f"{kept} | self.count = len(self.things) + 2",
            "return self.count == 0 | return None",
            "return self.count == 0 | return self.count != 0",
            "return self.count == 0 | return self.count == 1",
            "raise ValueError(f'{thing + 1} does not fit') | pass",
        ]
    )


def test_a_sample_is_the_same_for_the_same_seed_and_every_mutant_has_tests() -> None:
    first, again = mutants.drawn(30, 7, "rounds/parked.py"), mutants.drawn(30, 7, "rounds/parked.py")
    assert first == again != mutants.drawn(30, 8, "rounds/parked.py")
    assert {mutants.folder_of(mutant) for mutant in first} == {"server/rounds"}
    named = {test for stages in mutants.TESTS.values() for stage in stages for test in stage.paths.split()}
    assert [test for test in sorted(named) if not Path(test).exists()] == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_test_that_hangs_or_ends_its_process_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(mutants, "PATIENCE", 1.0)

    def work(last: Callable[[], object]) -> Callable[[Callable[[str], None]], str]:
        def begun(begin: Callable[[str], None]) -> str:
            begin("the first")
            begin("the second")
            last()
            return ""

        return begun

    log = tmp_path / "log"
    assert mutants.in_fork(log, work(lambda: None)) == ""
    assert mutants.in_fork(log, work(lambda: os._exit(1))) == "the second"
    assert mutants.in_fork(log, work(lambda: time.sleep(1000))) == "the second"


def test_a_folder_counts_with_those_inside_it() -> None:
    def report(branches: int, run: int, *missed: tuple[int, int]) -> dict[str, Any]:
        figures = {
            "num_statements": 10,
            "covered_lines": 5,
            "num_branches": branches,
            "covered_branches": run,
        }
        return {"summary": figures, "missing_branches": [list(each) for each in missed]}

    files = {
        "src/ekiden/stores/__init__.py": report(2, 2),
        "src/ekiden/stores/sqlite/file.py": report(8, 6, (3, 5), (9, -1)),
        "src/ekiden/storeroom/x.py": report(100, 0),
    }
    folders = covered.by_folder(files)
    assert set(folders) == {"stores", "stores/sqlite", "storeroom"}
    stores = covered.within("stores", folders)
    assert (stores.of_branches, stores.of_statements) == (80.0, 50.0)
    assert covered.missed("stores", files) == [
        "src/ekiden/stores/sqlite/file.py: 3 -> 5",
        "src/ekiden/stores/sqlite/file.py: 9 -> end",
    ]
