import asyncio
import contextvars
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from ekiden.transports.server.started import Started

PATIENCE = 30

T = TypeVar("T")


def waiting_part(coroutine: Coroutine[Any, Any, T]) -> Started[T]:
    """What is left of a coroutine that waits."""
    return Started(coroutine, coroutine.send(None))


async def test_a_coroutine_that_waits_is_gone_on_with() -> None:
    event = asyncio.Event()
    steps: list[str] = []

    async def waits() -> str:
        steps.append("before")
        await event.wait()
        await asyncio.sleep(0)
        steps.append("after")
        return "later"

    started = waiting_part(waits())
    assert steps == ["before"]
    asyncio.get_running_loop().call_soon(event.set)
    async with asyncio.timeout(PATIENCE):
        assert await started == "later"
    assert steps == ["before", "after"]


async def test_a_bare_yield_to_the_loop_counts_as_a_wait() -> None:
    started = waiting_part(asyncio.sleep(0, "slept"))
    assert await started == "slept"


async def test_an_exception_after_the_first_wait_is_raised_when_awaited() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("late")

    started = waiting_part(fails())
    with pytest.raises(ValueError, match="late"):
        await started


async def test_an_exception_of_what_it_waits_for_reaches_the_coroutine() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def catches() -> str:
        try:
            await future
        except KeyError:
            return "caught"
        return "not caught"

    started = waiting_part(catches())
    future.set_exception(KeyError())
    assert await started == "caught"


async def test_cancelling_the_task_cancels_the_coroutine_where_it_waits() -> None:
    cleaned = asyncio.Event()
    waiting = asyncio.Event()

    async def waits() -> None:
        try:
            waiting.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    async def caller() -> None:
        await waiting_part(waits())

    task = asyncio.create_task(caller())
    await waiting.wait()
    task.cancel()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert cleaned.is_set()


async def test_a_coroutine_may_swallow_a_cancellation_and_return() -> None:
    waiting = asyncio.Event()

    async def stubborn() -> str:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "stayed"
        return "never"

    async def caller() -> str:
        return await waiting_part(stubborn())

    task = asyncio.create_task(caller())
    await waiting.wait()
    task.cancel()
    async with asyncio.timeout(PATIENCE):
        assert await task == "stayed"


async def test_a_timeout_inside_the_coroutine_fires() -> None:
    async def times_out() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    started = waiting_part(times_out())
    async with asyncio.timeout(PATIENCE):
        assert await started == "timed out"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_timeout_around_the_rest_of_the_coroutine_fires() -> None:
    started = waiting_part(asyncio.Event().wait())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await started


async def test_a_task_group_entered_before_the_first_wait_works() -> None:
    async def grouped() -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(0, n)) for n in range(3)]
            await asyncio.sleep(0)
        return [task.result() for task in tasks]

    async with asyncio.timeout(PATIENCE):
        assert await waiting_part(grouped()) == [0, 1, 2]


async def test_both_halves_run_in_the_task_of_the_caller_and_in_its_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[object] = []

    @asynccontextmanager
    async def scope() -> AsyncGenerator[None, None]:
        token = variable.set("inside")
        try:
            yield
        finally:
            variable.reset(token)

    async def looks() -> None:
        async with scope():
            seen.append((asyncio.current_task(), variable.get()))
            await asyncio.sleep(0)
            seen.append((asyncio.current_task(), variable.get()))

    await waiting_part(looks())
    assert seen == [(asyncio.current_task(), "inside")] * 2
    assert variable.get() == "unset"


async def test_a_coroutine_that_is_dropped_halfway_is_closed() -> None:
    closed: list[bool] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def caller() -> None:
        await waiting_part(waits())

    dropped = caller()
    dropped.send(None)
    dropped.close()
    assert closed == [True]
