"""Tests that share a process are run by one worker of xdist: otherwise each worker starts that process."""

import pytest


def test_tests_of_a_group_are_run_by_the_same_worker(pytester: pytest.Pytester) -> None:
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
            group = "low" if number < 6 else "high"
            with Path(group).open("a") as note:
                note.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
        """
    )
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    ended = pytester.runpytest_subprocess("-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider")
    ended.assert_outcomes(passed=12)
    workers = [(pytester.path / group).read_text().split() for group in ("low", "high")]
    assert [len(set(of_group)) for of_group in workers] == [1, 1]
