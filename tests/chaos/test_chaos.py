"""A sample of what `make chaos-tasks` does; and that the judge sees what he should."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.clients import Started
from tests.chaos.fleet import Disturbance
from tests.chaos.judge import Begin, Evidence, Hold, Tidied, judge

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.timeout(460)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_tasks_survive_whatever_happens_to_their_workers(store: str) -> None:
    """In a process of its own: the one that all others are forked from ends with it."""
    command = [sys.executable, "-m", "tests.chaos.run", "--store", store, "--faults", "12", "--seed", "7"]
    ended = subprocess.run([*command, "--sample"], cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, f"{ended.stdout[-8000:]}\n{ended.stderr[-4000:]}"
    found = re.search(r"(\d+) tasks acknowledged", ended.stdout)
    assert found is not None, ended.stdout
    assert int(found[1]) > 0


# The judge


def row(task_id: str = "t", tool: str = "long", state: str = "completed", **more: Any) -> Any:
    fields = {
        "fence": 1,
        "losses": 0,
        "due": None,
        "error": None,
        "result": b'"call"',
        "questions": {},
        "expired": False,
    }
    return SimpleNamespace(**{**fields, "id": task_id, "tool": tool, "state": state, **more})


def evidence(*rows: Any, **more: Any) -> Evidence:
    made = Evidence(2.0, {}, {each.id: each for each in rows}, {}, more.pop("disturbances", []))
    for name, value in more.items():
        setattr(made, name, value)
    return made


def began(at: float, run: str = "1-1", looked: float | None = None, process: int = 1) -> Begin:
    return Begin("t", "s0", run, 1, at, at if looked is None else looked, process)


def broken(what: Evidence) -> list[str]:
    return [law for law, found in judge(what).broken.items() if found]


def test_a_run_without_faults_breaks_no_law() -> None:
    assert broken(evidence(row(), begins=[began(1.0)], commits={("t", "s0"): 2.0})) == []


def test_an_acknowledged_task_that_is_not_there_is_lost() -> None:
    assert broken(evidence(tasks={"x": Started("x", "long", "call", 0.0)})) == ["lost"]


def test_a_task_that_does_not_end_is_stuck() -> None:
    assert broken(evidence(row(state="waiting"))) == ["stuck"]


def test_a_beginning_after_the_commit_breaks_the_law_even_if_its_process_was_frozen() -> None:
    begins = [began(1.0), began(5.0, run="2-1", process=2)]
    frozen = Disturbance("freeze", 2, 1.0, 4.9)
    more: Any = {"commits": {("t", "s0"): 2.0}, "journals": {"t": {"s0": "1-1"}}, "disturbances": [frozen]}
    assert broken(evidence(row(), begins=begins, **more)) == ["a committed step begun again"]
    late = [began(1.0), began(5.0, run="2-1", looked=1.5, process=2)]
    verdict = judge(evidence(row(), begins=late, **more))
    assert (verdict.is_good, verdict.in_the_window) == (True, 1)


def test_a_step_that_begins_twice_needs_a_reason() -> None:
    begins = [began(1.0), began(4.0, run="2-1", process=2)]
    assert broken(evidence(row(), begins=begins)) == ["begun twice without a reason"]
    killed = Disturbance("kill", 1, 1.5)
    assert broken(evidence(row(), begins=begins, disturbances=[killed])) == []


def test_only_poison_may_fail_and_it_must() -> None:
    error = b"The task was given up: its workers were lost too often"
    assert broken(evidence(row(state="failed", error=error))) == ["failed without blame"]
    assert broken(evidence(row(tool="poison", state="failed", error=error))) == []
    assert broken(evidence(row(tool="poison"))) == ["poison that did not end"]


def test_a_task_that_nobody_takes_over_in_time_is_noticed() -> None:
    holds = {
        ("t", 1): Hold("t", 1, 0, process=1, since=1.0),
        ("t", 2): Hold("t", 2, 1, process=2, since=9.0, until=10.0),
    }
    killed = Disturbance("kill", 1, 2.0)
    assert broken(evidence(row(), holds=holds, disturbances=[killed])) == ["taken over too late"]
    away = Disturbance("database frozen", None, 3.0, 8.0)
    assert broken(evidence(row(), holds=holds, disturbances=[killed, away])) == []


def test_another_result_and_a_cancellation_that_is_not_cleaned_up_are_noticed() -> None:
    task = Started("t", "asks", "call", 0.0)
    assert broken(evidence(row(tool="asks"), tasks={"t": task})) == ["a wrong result"]
    task.is_cancelled = True
    assert broken(evidence(row(tool="asks", state="cancelled"), tasks={"t": task})) == [
        "ended early and not cleaned up"
    ]


def test_a_clean_up_that_was_not_told_of_a_step_is_noticed() -> None:
    """What is committed must be known to it, and what a worker that nobody hurt has done."""
    late = row(tool="expires", state="failed", expired=True, error=b"The task expired")
    assert broken(evidence(late)) == ["ended early and not cleaned up"]
    told = {"tidied": {"t": [Tidied(3.0, frozenset({"s0=1-1"}))]}, "journals": {"t": {"s0": "1-1"}}}
    assert broken(evidence(late, begins=[began(1.0)], ended={"1-1"}, **told)) == []
    unknown = {"tidied": {"t": [Tidied(3.0, frozenset())]}}
    law = "cleaned up without knowing of a step"
    assert broken(evidence(late, **{**told, **unknown})) == [law]
    assert broken(evidence(late, begins=[began(1.0)], ended={"1-1"}, **unknown)) == [law]
    assert broken(evidence(late, begins=[began(1.0)], **unknown)) == []
    killed = Disturbance("kill", 1, 2.0)
    assert broken(evidence(late, begins=[began(1.0)], ended={"1-1"}, disturbances=[killed], **unknown)) == []
