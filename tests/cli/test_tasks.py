"""`ekiden worker`, `ekiden tasks`, `ekiden store`, and a call that becomes a task."""

import asyncio
import contextlib
import json
import re
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from ekiden.stores.sqlite import SQLiteStore
from ekiden.tasks.record import TaskRecord
from ekiden.testing.task_contract import new_record

from .driving import EKIDEN, PATIENCE, ekiden, environment

SLOW = str(Path(__file__).parent / "servers" / "slow.py")
RETURNS = str(Path(__file__).parent.parent.parent / "examples" / "returns.py")
ANSWERS = ["--answer", "sure=true", "--answer", "why=late", "--answer", "boss=true"]


def test_a_call_that_becomes_a_task_is_shown_and_answered(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    done = ekiden("call", RETURNS, "refund", "order_id=42", "-v", *ANSWERS, EKIDEN_STORE=store)
    assert (done.returncode, done.stdout) == (0, "Refunded 59.9 to Ada (late).\n"), done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("task ")]
    assert re.fullmatch(r"task [0-9a-f]{32}", told[0])
    assert told[1] == "task working"
    assert "task input required: the money is reserved (1/2)" in told
    assert told[-1] == "task completed"


def test_an_answer_that_is_lacking_cancels_the_task_and_the_operator_sees_it(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    done = ekiden("call", RETURNS, "refund", "order_id=42", *ANSWERS[:4], EKIDEN_STORE=store)
    assert done.returncode == 2
    assert "Does the boss agree?" in done.stderr
    listed = json.loads(ekiden("tasks", "--store", store, "list", "--json").stdout)
    (task,) = listed
    assert (task["tool"], task["status"], task["openQuestions"]) == ("refund", "cancelled", 0)
    assert "arguments" not in task
    table = ekiden("tasks", "--store", store, "list").stdout
    assert task["taskId"] in table
    assert ekiden("tasks", "--store", store, "list", "--state", "waiting").stdout.strip() == ""
    got = json.loads(ekiden("tasks", "--store", store, "get", task["taskId"]).stdout)
    assert got == task
    assert ekiden("tasks", "--store", store, "get", "unknown").returncode == 2
    dashed = ekiden("tasks", "--store", store, "get", "--", "-of-another-server")
    assert "-of-another-server" in dashed.stderr
    assert ekiden("tasks", "list").returncode == 2


def test_an_operator_who_mistypes_is_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    wrong = ekiden("tasks", "--store", f"sqlite:///{tmp_path}/taks.db", "list")
    assert wrong.returncode == 2
    assert "there is no store at" in wrong.stderr
    assert list(tmp_path.iterdir()) == []
    store = f"sqlite:///{tmp_path}/tasks.db"
    assert ekiden("store", "migrate", store).returncode == 0
    unknown = ekiden("tasks", "--store", store, "list", "--state", "wating")
    assert unknown.returncode == 2
    assert "queued, running, waiting" in unknown.stderr


def test_a_worker_runs_what_a_server_only_took_and_hands_over_when_it_is_stopped(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    assert ekiden("store", "migrate", store).returncode == 0
    worker = subprocess.Popen(
        [*EKIDEN, "worker", RETURNS, "--store", store],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stderr is not None
        assert f"are run by process {worker.pid}" in worker.stderr.readline()
        serving = subprocess.Popen(
            [*EKIDEN, "run", RETURNS, "--store", store, "--no-tasks", "--port", "0"],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert serving.stderr is not None
            line = serving.stderr.readline()
            while "is served at" not in line:
                assert line, "the server ended"
                line = serving.stderr.readline()
            url = line.split()[-1]
            done = ekiden("call", url, "refund", "order_id=7", *ANSWERS)
            assert done.stdout == "Refunded 59.9 to Ada (late).\n", done.stderr
            (task,) = json.loads(ekiden("tasks", "--store", store, "list", "--json").stdout)
            got = json.loads(ekiden("tasks", url, "get", task["taskId"]).stdout)
            assert (got["taskId"], got["status"]) == (task["taskId"], "completed")
            assert "error" not in got
            assert (
                "had ended already: completed; nothing was"
                in ekiden("tasks", url, "cancel", task["taskId"]).stderr
            )
        finally:
            serving.terminate()
            serving.communicate(timeout=PATIENCE)
    finally:
        worker.send_signal(signal.SIGTERM)
        said = worker.communicate(timeout=PATIENCE)[1]
    assert worker.returncode == 0
    assert f"process {worker.pid}: pay back" in said


@pytest.mark.parametrize(("grace", "is_enough"), [("60", True), ("0.3", False)])
def test_a_worker_that_is_stopped_gives_running_steps_its_grace(
    tmp_path: Path, grace: str, is_enough: bool
) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    record = new_record(audience="slow", tool="slow", arguments={"seconds": 3.0}, ttl=None)
    asyncio.run(_keep(store, record))
    worker = subprocess.Popen(
        [*EKIDEN, "worker", SLOW, "--store", f"sqlite:///{tmp_path}/tasks.db", "--grace", grace],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stderr is not None
        while "begins" not in (line := worker.stderr.readline()):
            assert line, "the worker ended"
    finally:
        worker.send_signal(signal.SIGTERM)
        said = worker.communicate(timeout=PATIENCE)[1]
    assert ("has ended" in said) is is_enough
    assert ("has not come to a rest within 0.3 s" in said) is not is_enough
    assert asyncio.run(_steps(SQLiteStore(tmp_path / "tasks.db"))) == is_enough


async def _keep(store: SQLiteStore, record: TaskRecord) -> None:
    await store.tasks.insert(record, {})
    await store.close()


async def _steps(store: SQLiteStore) -> int:
    entries = await store.tasks.entries("task")
    await store.close()
    return len(entries)


def test_neither_server_nor_worker_starts_on_a_store_of_a_newer_version(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "tasks.db")) as newer:
        newer.execute("PRAGMA user_version = 99")
    store = f"sqlite:///{tmp_path}/tasks.db"
    for command in (["run", "--port", "0"], ["worker"]):
        done = ekiden(command[0], RETURNS, "--store", store, *command[1:])
        assert done.returncode in {1, 2}
        assert "was written by a newer ekiden" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_worker_says_what_it_lacks(tmp_path: Path) -> None:
    from .driving import SHOP

    lacking = ekiden("worker", SHOP, "--store", f"sqlite:///{tmp_path}/tasks.db")
    assert (lacking.returncode, "no tool that can become a task" in lacking.stderr) == (2, True)
    alone = ekiden("worker", RETURNS, EKIDEN_STORE="memory:")
    assert (alone.returncode, "needs a store that others share" in alone.stderr) == (2, True)
    assert ekiden("store", "migrate", "memory:").returncode == 2
