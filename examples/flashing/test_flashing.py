"""The story of an update, in one process: questions, the window, the approver, failures, cancellation."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import devices
import httpx2
import pytest
from browsing import answer_page, said, until

import server as desk
from ekiden import Client, Notice, Retry, TaskHandle
from ekiden.testing import DECLINE, CallFailed, ScriptedClient

ASKED = "Flash 2.0 on 4 devices?"
DONE = "4 devices were flashed with 2.0. 4 of them run it."
NOW = {"starts": "2026-01-01T00:00:00Z", "at_once": 2}


class Approver:
    """Gets the links, and answers on their pages as told."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.answer: dict[str, str] | None = {"go_on": "true"}
        self.pages: list[str] = []

    async def __call__(self, notice: Notice) -> None:
        self.notices.append(notice)
        if self.answer is not None:
            asyncio.get_running_loop().create_task(self.open(notice.link, self.answer))

    async def open(self, link: str, answer: dict[str, str]) -> None:
        transport = httpx2.ASGITransport(app=desk.server.asgi())
        async with httpx2.AsyncClient(transport=transport) as browser:
            self.pages.append(await answer_page(browser, link, **answer))


@pytest.fixture(autouse=True)
def approver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Approver:
    """Four lamps with firmware 1.0, and somebody who approves."""
    monkeypatch.setenv("FLEET", str(tmp_path))
    monkeypatch.setenv("FLASH_SECONDS", "0.01")
    monkeypatch.setattr(desk, "RETRY", Retry(attempts=3, seconds=0.05))
    devices.make_fleet(4)
    approver = Approver()
    monkeypatch.setattr(desk.pages, "notify", approver)
    return approver


def histories() -> list[list[str]]:
    """What was ever written to each of the four lamps; nothing may be left half done."""
    assert [device.name for device in devices.fleet() if device.writing] == []
    return [device.history for device in devices.fleet()]


async def updated(window: Any = NOW) -> str:
    client = ScriptedClient(desk.server, {ASKED: window}, tasks=True)
    return said(await client.call_tool("update", {"firmware": "2.0"}))


async def test_the_whole_fleet_is_flashed_once_each_and_the_approver_is_asked_after_the_first(
    approver: Approver,
) -> None:
    assert await updated() == DONE
    assert histories() == [["1.0", "2.0"]] * 4
    assert [notice.person for notice in approver.notices] == ["operations@example.com"]
    assert "lamp-1 runs 2.0. Go on with 3 more?" in approver.pages[0]


async def test_the_task_sleeps_until_its_window() -> None:
    starts = datetime.now(UTC) + timedelta(seconds=1)
    client = ScriptedClient(desk.server, {ASKED: {"starts": starts.isoformat(), "at_once": 1}}, tasks=True)
    await client.call_tool("update", {"firmware": "2.0"})
    assert datetime.now(UTC) >= starts
    told = [str(status.get("statusMessage")) for status in client.statuses]
    assert any(words.startswith("waits until") for words in told), told


async def test_a_user_who_declines_flashes_nothing() -> None:
    assert await updated(DECLINE) == "Nothing was flashed."
    assert histories() == [["1.0"]] * 4


@pytest.mark.parametrize("answer", [{"go_on": "false"}, {"action": "decline"}])
async def test_an_approver_who_says_no_leaves_the_others_alone(
    approver: Approver, answer: dict[str, str]
) -> None:
    approver.answer = answer
    assert (await updated()).endswith("did not agree. lamp-1 runs 2.0, the others were left alone.")
    assert histories() == [["1.0", "2.0"], ["1.0"], ["1.0"], ["1.0"]]


async def test_an_approver_who_does_not_answer_is_reminded_and_then_it_is_a_no(
    approver: Approver, monkeypatch: pytest.MonkeyPatch
) -> None:
    approver.answer = None
    monkeypatch.setattr(desk, "REMIND_SECONDS", 1.0)
    monkeypatch.setattr(desk, "DEADLINE_SECONDS", 5.0)
    assert (await updated()).startswith("operations@example.com did not agree.")
    first, *later = [notice.kind for notice in approver.notices]
    assert (first, set(later)) == ("asked", {"reminded"})
    assert histories() == [["1.0", "2.0"], ["1.0"], ["1.0"], ["1.0"]]


def fail(name: str, times: int) -> None:
    devices.save(devices.load(name).model_copy(update={"faults": times}))


async def test_a_device_that_fails_twice_is_flashed_at_the_third_try() -> None:
    fail("lamp-3", 2)
    assert await updated() == DONE
    assert histories() == [["1.0", "2.0"]] * 4


async def test_a_device_that_never_answers_stops_the_update(approver: Approver) -> None:
    fail("lamp-2", 99)
    assert await updated() == "Stopped: lamp-2 could not be flashed, and keeps its firmware."
    assert histories() == [["1.0", "2.0"], ["1.0"], ["1.0", "2.0"], ["1.0"]]


async def test_if_the_first_device_fails_nobody_is_asked(approver: Approver) -> None:
    fail("lamp-1", 99)
    assert (await updated()).startswith("lamp-1 could not be flashed")
    assert approver.notices == []
    assert histories() == [["1.0"]] * 4


async def test_a_device_that_another_update_is_writing_is_left_to_it() -> None:
    busy = devices.load("lamp-1").model_copy(update={"writing": "1.5", "run": "another"})
    devices.save(busy)
    assert (await updated()).startswith("lamp-1 could not be flashed")
    assert devices.load("lamp-1") == busy


async def test_a_fleet_that_is_up_to_date_is_not_touched() -> None:
    result = await ScriptedClient(desk.server, tasks=True).call_tool("update", {"firmware": "1.0"})
    assert said(result) == "All devices have 1.0."


async def test_a_client_without_tasks_is_told_so() -> None:
    with pytest.raises(CallFailed, match="task"):
        await ScriptedClient(desk.server).call_tool("update", {"firmware": "2.0"})


class Step:
    """As much of a context as a step of ours looks at."""

    step_key = "the same key"


async def test_a_step_that_runs_again_after_its_last_write_writes_nothing() -> None:
    for _ in range(2):
        await devices.flash("lamp-1", "2.0", "run", Step())  # type: ignore[arg-type]
    assert devices.load("lamp-1").history == ["1.0", "2.0"]


@asynccontextmanager
async def started(approver: Approver) -> AsyncIterator[TaskHandle]:
    """An update whose client cannot show a form: its user is told of a page, and answers there."""
    async with desk.server.running(), Client(desk.server) as client:
        handle = await client.start_tool("update", {"firmware": "2.0"})
        assert isinstance(handle, TaskHandle)

        async def link() -> str | None:
            found = re.search(r"http://\S+/ask/[\w.-]+\w", (await handle.status()).status_message or "")
            return None if found is None else found[0]

        await approver.open(await until(link), {"starts": "2026-01-01T00:00", "at_once": "2"})
        yield handle


async def ending(handle: TaskHandle) -> str:
    """How the task ended. The clean-up of a cancelled one may still run."""

    async def status() -> str | None:
        now = await handle.status()
        return now.status if now.ended else None

    return await until(status)


async def is_writing() -> bool:
    return any(device.writing for device in devices.fleet())


async def is_let_go() -> bool:
    return not await is_writing()


async def test_a_cancelled_update_lets_go_of_the_device_that_it_was_writing(
    approver: Approver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASH_SECONDS", "60")  # The step is cut short.
    async with started(approver) as handle:
        await until(is_writing)
        assert devices.load("lamp-1").writing == "2.0"
        await handle.cancel()
        assert await ending(handle) == "cancelled"
        await until(is_let_go)
    assert histories() == [["1.0"]] * 4


async def test_an_update_that_is_cancelled_while_the_approver_thinks_keeps_what_is_done(
    approver: Approver,
) -> None:
    approver.answer = None
    async with started(approver) as handle:

        async def notices() -> list[Notice]:
            return approver.notices

        [notice] = await until(notices)
        await handle.cancel()
        assert await ending(handle) == "cancelled"
        with pytest.raises(AssertionError, match="nothing to answer any more"):
            await approver.open(notice.link, {"go_on": "true"})
    assert histories() == [["1.0", "2.0"], ["1.0"], ["1.0"], ["1.0"]]
