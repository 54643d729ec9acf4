"""The two-minute form of `make soak`; and that the judge sees what it should."""

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.soak.clients import Findings
from tests.soak.judging import Verdict, judge_steps, steady_growth
from tests.soak.trouble import Trouble

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.timeout(660)
def test_nothing_is_lost_doubled_leaked_or_seen_by_others_in_two_minutes() -> None:
    command = [sys.executable, "-m", "tests.soak.run", "--seconds", "120", "--clients", "200"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    print(ended.stdout)
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
    assert "lost 0, doubled 0, leaked 0\nforeign data seen 0 in" in ended.stdout
    calls = re.search(r"^calls (\d+)", ended.stdout, re.MULTILINE)
    assert calls is not None
    assert int(calls[1]) > 200, "every client has called"


# The judge


def judged(tmp_path: Path, *lines: str, events: list[tuple[float, float, str]] | None = None) -> Verdict:
    (tmp_path / "1").write_text("\n".join(lines))
    nobody: Any = None
    trouble = Trouble(nobody, nobody, tmp_path, [], random.Random(0), 0, events or [])
    findings, verdict = Findings(), Verdict()
    findings.finished = findings.with_steps = {"a-1"}
    judge_steps(tmp_path, findings, trouble, verdict)
    return verdict


def test_a_step_that_ran_once_is_in_order(tmp_path: Path) -> None:
    assert judged(tmp_path, "1.0 a-1 ask1 k1", "2.0 a-1 ask2 k2").is_good


def test_a_step_under_two_keys_is_doubled(tmp_path: Path) -> None:
    kill = [(1.5, 1.5, "kill")]
    assert judged(tmp_path, "1.0 a-1 ask1 k1", "2.0 a-1 ask1 k2", events=kill).doubled


def test_a_step_that_begins_again_under_its_key_needs_a_reason(tmp_path: Path) -> None:
    lines = "1.0 a-1 ask1 k1", "2.0 a-1 ask1 k1"
    assert judged(tmp_path, *lines).doubled
    assert judged(tmp_path, *lines, events=[(1.5, 1.5, "rotate")]).doubled, "a rotation is not a reason"
    excused = judged(tmp_path, *lines, events=[(1.5, 1.5, "kill")])
    assert (excused.is_good, excused.begun_again) == (True, 1)


def test_a_call_that_ended_without_its_steps_has_lost_them(tmp_path: Path) -> None:
    assert judged(tmp_path, "1.0 b-1 ask1 k1").lost


def test_memory_that_grows_is_noticed() -> None:
    flat, growing = Verdict(), Verdict()
    steady_growth([80.0 + number % 3 for number in range(100)], flat)
    steady_growth([80.0 + number for number in range(100)], growing)
    assert (flat.is_good, growing.is_good) == (True, False)
