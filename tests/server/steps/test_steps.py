"""Running a step: threads, cancellation, and trying again."""

import asyncio
import threading
from typing import Any

import pytest

from ekiden import Retry, StepFailed, StoreUnavailable
from ekiden.rounds.journal import Entry
from ekiden.rounds.performing import current_memory
from ekiden.server.steps.step import FunctionStep


async def began(event: threading.Event) -> None:
    assert await asyncio.get_running_loop().run_in_executor(None, event.wait, 10)


async def test_a_thread_that_runs_on_after_its_step_was_cancelled_can_be_waited_for() -> None:
    started, release = threading.Event(), threading.Event()

    def block() -> str:
        started.set()
        assert release.wait(10)
        raise LookupError("nobody asks")

    step = FunctionStep(block, (), retry=Retry(seconds=0), keyed=True)
    task = asyncio.ensure_future(step.perform())
    await began(started)
    assert step.running is None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    left = step.running
    assert left is not None
    assert not left.done()
    release.set()
    await asyncio.wait({left}, timeout=10)
    assert left.done()
    await asyncio.sleep(0)
    assert step.running is None


async def test_nothing_is_left_of_a_coroutine_that_was_cancelled() -> None:
    async def wait() -> None:
        await asyncio.sleep(60)

    step = FunctionStep(wait, ())
    task = asyncio.ensure_future(step.perform())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert step.running is None


async def test_a_step_that_answers_its_cancellation_with_an_error_is_not_tried_again() -> None:
    ran: list[int] = []

    async def wait() -> None:
        ran.append(1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionError("cut") from None

    step = FunctionStep(wait, (), retry=Retry(seconds=0), keyed=True)
    task = asyncio.ensure_future(step.perform())
    await asyncio.sleep(0)
    task.cancel()
    entry = await asyncio.wait_for(task, 10)
    assert entry.kind == "failure"
    assert ran == [1]


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_cancellation_that_is_not_the_steps_own_is_a_recorded_failure(threaded: bool) -> None:
    async def escape() -> None:
        raise asyncio.CancelledError

    def escape_in_a_thread() -> None:
        raise asyncio.CancelledError

    step = FunctionStep(escape_in_a_thread if threaded else escape, ())
    entry = await step.perform()
    with pytest.raises(StepFailed, match="CancelledError"):
        step.recall(entry)


async def test_every_try_gets_arguments_of_its_own() -> None:
    found: list[Any] = []

    def take(order: dict[str, int]) -> int:
        found.append(dict(order))
        order.clear()
        mine["late"] = 1
        if len(found) < 3:
            raise ConnectionError("down")
        return 1

    mine = {"n": 1}
    step = FunctionStep(take, (mine,), retry=Retry(attempts=5, seconds=0), keyed=True)
    step.prepare()
    entry = await step.perform()
    assert entry.kind == "step"
    assert found == [{"n": 1}] * 3


async def test_an_entry_says_in_words_what_the_step_was() -> None:
    entry = await FunctionStep(began_at, (5,)).perform()
    assert entry.branch == 0
    assert entry.about.startswith(f"{__name__}.began_at(5) at test_steps.py:")


def began_at(number: int) -> int:
    return number


class Doubtful:
    """A memory whose claim is not certain any more when a thread is free, and cannot be asked for then."""

    def __init__(self) -> None:
        self.asked = 0

    def is_sure(self) -> bool:
        return False

    async def recall(self) -> dict[str, Entry]:
        self.asked += 1
        raise StoreUnavailable("the database is away")


async def test_a_store_that_is_away_before_a_thread_begins_is_not_a_failure_of_the_step() -> None:
    begun: list[int] = []

    def charge() -> int:
        begun.append(1)
        return 1

    memory = Doubtful()
    token = current_memory.set(memory)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  all that is asked of it
    try:
        with pytest.raises(StoreUnavailable):
            await FunctionStep(charge, (), keyed=True).attempt()
    finally:
        current_memory.reset(token)
    assert memory.asked == 1
    assert not begun
