"""`ekiden call --detach` and `ekiden tasks TARGET`: tasks are begun, answered, waited for, cancelled."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing.task_contract import new_record
from tests.cli.calling.errands import ERRANDS, detached, errands, over_stdio
from tests.cli.driving import CTRL_C, DOWN, ENTER, ESC, ekiden, eventually, person, running

WALK = ["--answer", "Left or=left", "--answer", "Buy bread?=yes"]
"""By their messages: servers of 2025 send no keys."""


def status(target: str, task_id: str, *options: str, **settings: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(
        ekiden("tasks", target, "get", task_id, *options, **settings).stdout
    )
    return found


# Detach and wait


def test_a_call_is_left_as_a_task_and_its_result_fetched_later_in_both_eras(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        for era in ("modern", "legacy"):
            done = ekiden("call", url, "walk", "--detach", "--era", era)
            assert done.returncode == 0, done.stderr
            task_id = done.stdout.removesuffix("\n")
            assert done.stderr == (
                f"ekiden: the call goes on as a task; for its result: ekiden tasks {url} wait {task_id}\n"
            )
            waited = ekiden("tasks", url, "wait", task_id, "--era", era, *WALK)
            assert (waited.returncode, waited.stdout) == (0, "went left, with bread\n"), waited.stderr
            again = ekiden("tasks", url, "wait", task_id, "--era", era, "--json")
            assert json.loads(again.stdout)["content"][0]["text"] == "went left, with bread"


def test_a_task_of_a_server_on_stdio_is_in_its_store(tmp_path: Path) -> None:
    store = {"EKIDEN_STORE": f"sqlite:///{tmp_path}/tasks.db"}
    task_id = detached(over_stdio(), "walk", "--env", "EKIDEN_STORE", **store)
    waited = ekiden("tasks", over_stdio(), "wait", task_id, *WALK, "--env", "EKIDEN_STORE", **store)
    assert (waited.returncode, waited.stdout) == (0, "went left, with bread\n"), waited.stderr


def test_a_server_of_a_file_must_keep_what_is_left(tmp_path: Path) -> None:
    lost = ekiden("call", ERRANDS, "walk", "--detach")
    assert (lost.returncode, lost.stdout) == (2, "")
    assert lost.stderr == (
        f"ekiden: {ERRANDS} runs in this process, and its tasks would end with it: set EKIDEN_STORE, "
        "or call a server that is running\n"
    )
    store = {"EKIDEN_STORE": f"sqlite:///{tmp_path}/tasks.db"}
    task_id = detached(ERRANDS, "walk", **store)
    waited = ekiden("tasks", ERRANDS, "wait", task_id, *WALK, **store)
    assert waited.stdout == "went left, with bread\n", waited.stderr


def test_a_call_that_becomes_no_task_shows_its_result_with_detach_too(tmp_path: Path) -> None:
    plain = tmp_path / "plain.py"
    plain.write_text(
        "from ekiden import Server\nserver = Server('plain', store='sqlite:///plain.db')\n\n\n"
        "@server.tool\nasync def add(a: int, b: int) -> int:\n    return a + b\n"
    )
    done = ekiden("call", "plain.py", "add", "a=1", "b=2", "--detach", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert done.stderr == "The call has ended: it did not become a task.\n"


def test_detach_prints_the_task_as_json_for_programs(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        task = json.loads(ekiden("call", url, "walk", "--detach", "--json").stdout)
        assert task["taskId"] == status(url, task["taskId"])["taskId"]
        assert task["status"] in ("working", "input_required")


def test_a_task_goes_on_when_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        task_id = detached(url, "dawdle", f"folder={tmp_path}")
        late = ekiden("tasks", url, "wait", task_id, "--timeout", "1")
        assert (late.returncode, late.stdout) == (1, "")
        assert late.stderr == "ekiden: there was no result within 1 seconds; the task goes on\n"
        with running(tmp_path / "log", "tasks", url, "wait", task_id, "-v") as waiting:
            waiting.await_saying("task working")
            assert waiting.stop(signal.SIGINT) == 130
            assert waiting.said.endswith("ekiden: interrupted; the task goes on\n")
        (tmp_path / "enough").touch()
        assert ekiden("tasks", url, "wait", task_id).stdout == "home at last\n"


def test_a_call_that_lacks_an_answer_in_its_task_says_what_became_of_the_task(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        done = ekiden("call", url, "walk", "--answer", "way=left")
        assert done.returncode == 2
        assert "no answer is given to 'Buy bread?'" in done.stderr
        assert "The call had become a task, which is cancelled now; with --detach it stays" in done.stderr
        listed = ekiden("tasks", "--store", f"sqlite:///{tmp_path}/tasks.db", "list", "--json")
        assert [task["state"] for task in json.loads(listed.stdout)] == ["cancelled"]


# Answer


def test_a_task_is_answered_without_waiting_for_it(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        task_id = detached(url, "walk")
        eventually(lambda: status(url, task_id)["status"] == "input_required", "it asks")
        answered = ekiden("tasks", url, "answer", task_id, "--answer", "way=right")
        assert answered.returncode == 0
        assert answered.stderr.startswith(f"ekiden: answered 'Left or right?'; task {task_id}: ")
        eventually(lambda: "Buy bread?" in json.dumps(status(url, task_id)), "it asks on")
        missing = ekiden("tasks", url, "wait", task_id)
        assert missing.returncode == 2
        assert "no answer is given to 'Buy bread?' (key 'bread.1'; value: boolean)" in missing.stderr
        ekiden("tasks", url, "answer", task_id, "--answer", "Buy=no")
        assert ekiden("tasks", url, "wait", task_id).stdout == "went right, without bread\n"
        ended = ekiden("tasks", url, "answer", task_id, "--answer", "Buy=no")
        assert (ended.returncode, ended.stderr) == (2, f"ekiden: task {task_id} asks nothing: completed\n")


def test_one_of_two_questions_can_be_answered_and_the_other_left(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        task_id = detached(url, "two_at_once")
        eventually(lambda: "And then?" in json.dumps(status(url, task_id)), "it asks both")
        nothing = ekiden("tasks", url, "answer", task_id)
        assert nothing.returncode == 2
        assert "no answer is given to 'First of all?'" in nothing.stderr
        wrong = ekiden("tasks", url, "answer", task_id, "--answer", "first=1", "--answer", "secnd=2")
        assert (wrong.returncode, wrong.stderr) == (
            2,
            "ekiden: the answer 'secnd' fits nothing that is asked: 'First of all?', 'And then?'\n",
        )
        some = ekiden("tasks", url, "answer", task_id, "--answer", "second=two")
        assert some.returncode == 0
        assert some.stderr.startswith("ekiden: answered 'And then?'; ")
        rest = ekiden("tasks", url, "wait", task_id, "--answer", "first=one")
        assert rest.stdout == "one two\n", rest.stderr


def test_a_task_is_answered_at_the_terminal_by_one_key(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        task_id = detached(url, "walk")
        eventually(lambda: status(url, task_id)["status"] == "input_required", "it asks")
        assert ekiden("tasks", url, "answer", task_id, "--answer", "way=left").returncode == 0
        eventually(lambda: "Buy bread?" in json.dumps(status(url, task_id)), "it asks on")
        with person("tasks", url, "answer", task_id) as user:
            user.reads("Buy bread?")
            user.reads("value")
            user.presses("y")
            assert user.ends() == 0
            assert f"ekiden: answered 'Buy bread?'; task {task_id}: " in user.screen
        assert ekiden("tasks", url, "wait", task_id).stdout == "went left, with bread\n"


def test_a_server_of_2025_is_answered_by_waiting(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        task_id = detached(url, "walk", "--era", "legacy")
        refused = ekiden("tasks", url, "answer", task_id, "--era", "legacy", *WALK)
        assert refused.returncode == 2
        assert "say wait instead of answer, with the same answers" in refused.stderr


# Cancel


def test_cancel_says_what_it_did(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        waits = detached(url, "walk")
        eventually(lambda: status(url, waits)["status"] == "input_required", "it asks")
        assert ekiden("tasks", url, "cancel", waits).stderr == f"ekiden: task {waits} was cancelled\n"
        again = ekiden("tasks", url, "cancel", waits)
        assert again.stderr == (f"ekiden: task {waits} had ended already: cancelled; nothing was cancelled\n")
        waited = ekiden("tasks", url, "wait", waits)
        assert (waited.returncode, waited.stdout) == (1, "")
        assert f"Task {waits} was cancelled" in waited.stderr
        runs = detached(url, "plod", f"folder={tmp_path}")
        eventually((tmp_path / "began").exists, "its step begins")
        told = ekiden("tasks", url, "cancel", runs).stderr
        assert told.startswith(f"ekiden: task {runs} was told to stop, and has not stopped yet: working")
        (tmp_path / "enough").touch()
        eventually(lambda: status(url, runs)["status"] != "working", "it stops")


# What cannot work


def test_a_task_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        for action in ("get", "wait", "answer", "cancel"):
            for era in ("modern", "legacy"):
                done = ekiden("tasks", url, action, "unknown", "--era", era)
                assert (done.returncode, done.stdout) == (2, ""), (action, era)
                assert done.stderr.startswith("ekiden: the server has no task 'unknown' of yours")
                assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["http://127.0.0.1:9/mcp", "wait", "x"], 1, "Cannot connect to 127.0.0.1:9"),
        ([ERRANDS, "wait"], 2, "say TARGET get|wait|answer|cancel ID, or --store URL list|get|cancel"),
        ([ERRANDS, "wiat", "x"], 2, "say TARGET get|wait|answer|cancel ID, or --store URL list|get|cancel"),
    ],
)
def test_tasks_that_cannot_be_reached_are_told_in_one_line(words: list[str], code: int, said: str) -> None:
    done = ekiden("tasks", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"ekiden: {said}")


# What a person sees


def test_a_bar_shows_the_steps_and_messages_of_a_task(tmp_path: Path) -> None:
    with person("call", ERRANDS, "walk") as user:
        user.reads("Left or right?")
        user.presses(ENTER)
        user.reads("Send this")
        user.presses(ENTER)
        user.reads("Buy bread?")
        user.reads("value")
        user.presses("n")
        assert user.ends() == 0
        assert "went left, without bread" in user.screen
        shown = user.raw.decode(errors="replace")
        assert "0/?" not in shown
        assert "1/3" in shown
        assert "left the house" in shown
        assert "2/3" in shown


def test_a_message_without_steps_has_a_bar_without_a_count(tmp_path: Path) -> None:
    with person("call", ERRANDS, "dawdle", f"folder={tmp_path}") as user:
        user.reads("working: looks at the shop window")
        assert "/?" not in user.raw.decode(errors="replace")
        (tmp_path / "enough").touch()
        assert user.ends() == 0


def test_a_tool_that_crashed_is_not_listed_as_plainly_completed(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    with errands(tmp_path) as (url, _):
        crashed = detached(url, "crash")
        waited = ekiden("tasks", url, "wait", crashed, "-v")
        assert waited.returncode == 1
        assert "task completed, but the tool failed" in waited.stderr
        fine = detached(url, "walk")
        assert ekiden("tasks", url, "wait", fine, *WALK).returncode == 0
        table = ekiden("tasks", "--store", store, "list").stdout
        rows = {line.split()[0]: line for line in table.splitlines() if line.strip()}
        assert "completed, but the tool failed" in rows[crashed]
        assert "but the tool failed" not in rows[fine]
        listed = json.loads(ekiden("tasks", "--store", store, "list", "--json").stdout)
        assert {task["taskId"]: task["toolFailed"] for task in listed} == {crashed: True, fine: False}


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_ids_are_listed_on_one_line_and_nothing_is_cut_off(tmp_path: Path, columns: int) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    asyncio.run(_keep(SQLiteStore(tmp_path / "tasks.db"), "f" * 32, "buys milk"))
    with person("tasks", "--store", store, "list", columns=columns) as user:
        assert user.ends() == 0
        lines = user.screen.splitlines()
        assert any(line.split()[:1] == ["f" * 32] for line in lines), user.screen
        assert max(map(len, lines)) <= columns
        assert "milk" in user.screen
        assert ("Made" in user.screen) is (columns == 140)


async def _keep(store: SQLiteStore, task_id: str, message: str) -> None:
    await store.tasks.insert(new_record(task_id, audience="errands", tool="walk", message=message), {})
    await store.close()


def test_ctrl_c_leaves_the_task_that_is_waited_for(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        task_id = detached(url, "walk")
        with person("tasks", url, "wait", task_id) as user:
            user.reads("Left or right?")
            user.presses(CTRL_C)
            assert user.ends() == 130
            assert "interrupted; the task goes on" in user.screen
        with person("tasks", url, "wait", task_id) as user:
            user.reads("Left or right?")
            user.presses(ESC)
            user.reads("What now?")
            user.presses(DOWN, ENTER)
            user.reads("Buy bread?")
            user.reads("value")
            user.presses("y")
            assert user.ends() == 0
            assert "went None, with bread" in user.screen
