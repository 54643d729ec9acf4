"""Tests that share a process are run by one worker of xdist: otherwise each worker starts that process."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_tests_of_a_group_are_run_by_the_same_worker_and_so_are_a_few_neighbours(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        """
        import os
        from pathlib import Path

        import pytest

        @pytest.mark.parametrize("number", [
            pytest.param(number, marks=pytest.mark.xdist_group("low" if number < 6 else "high"))
            for number in range(12)
        ])
        def test_notes_who_runs_it(number):
            note(number, "low" if number < 6 else "high")

        @pytest.mark.parametrize("number", range(20))
        def test_belongs_to_no_group(number):
            note(number, f"chunk {number // 8}")

        def note(number, group):
            with Path(group).open("a") as written:
                written.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
        """
    )
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    options = ["-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "-p", "tests.scheduling"]
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=32)
    groups = ("low", "high", "chunk 0", "chunk 1", "chunk 2")
    workers = {group: (pytester.path / group).read_text().split() for group in groups}
    assert {group: len(run) for group, run in workers.items()} == dict(
        zip(groups, (6, 6, 8, 8, 4), strict=True)
    )
    assert {group: len(set(run)) for group, run in workers.items()} == dict.fromkeys(groups, 1)
