"""A coroutine that is begun at once has a task as any other, from its first moment."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from ekiden.rounds.eagerly import EagerTask


def _begin(function: Callable[[], Any]) -> EagerTask:
    begun = EagerTask(asyncio.get_running_loop(), function())
    begun.begin("a tool")

    return begun


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (lambda task: task.get_name(), "a tool"),
        (lambda task: task.get_loop() is asyncio.get_running_loop(), True),
        (lambda task: task.done(), False),
        (lambda task: task.cancelling(), 0),
        (lambda task: "name='a tool'" in repr(task) and "handler()" in repr(task), True),
        (lambda task: task.get_coro().cr_code.co_name, "handler"),
        (lambda task: task in asyncio.all_tasks(), True),
        (lambda task: type(task) is asyncio.Task, True),
        (lambda task: asyncio.Task.get_coro(task).cr_code.co_name, "handler"),
        (lambda task: asyncio.Task.get_name(task), "a tool"),
        (lambda task: asyncio.iscoroutine(task.get_coro()), True),
        (lambda task: weakref.ref(task.get_coro())() is task.get_coro(), True),
    ],
)
async def test_whoever_looks_at_the_task_finds_one(look: Callable[[Any], Any], expected: object) -> None:
    async def handler() -> Any:
        return look(asyncio.current_task())

    assert _begin(handler).result() == expected


async def test_the_task_is_the_same_before_and_after_a_wait() -> None:
    seen: list[Any] = []
    states: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    async def handler() -> str:
        seen.append(asyncio.current_task())
        states[seen[0]] = "kept by its task"
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        return states[seen[1]]

    begun = _begin(handler)
    assert await begun.task == "kept by its task"
    assert seen[0] is seen[1] is begun.task


async def test_what_is_to_be_called_at_its_end_is_called() -> None:
    ended: list[Any] = []

    async def handler() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(ended.append)
        return "done"

    begun = _begin(handler)
    task = begun.task
    assert (begun.done, begun.result(), ended) == (True, "done", [])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == [task]


async def test_a_task_that_somebody_keeps_is_done_soon_after_its_coroutine() -> None:
    async def handler() -> Any:
        return asyncio.current_task()

    begun = _begin(handler)
    task = begun.result()
    del begun.task  # As a leg does that has ended.
    assert await task is None
    assert task.done()
    assert task.exception() is None


async def _by_a_timeout(wait: Awaitable[None]) -> str:
    try:
        async with asyncio.timeout(0.01):
            await wait
    except TimeoutError:
        return "late"
    return "in time"


async def _by_a_cancel_scope(wait: Awaitable[None]) -> str:
    with anyio.move_on_after(0.01) as scope:
        await wait
    return "late" if scope.cancelled_caught else "in time"


async def _by_a_task_group(wait: Awaitable[None]) -> str:
    async def soon() -> None:
        await asyncio.sleep(0.01)
        raise LookupError

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(soon())
            await wait
    except* LookupError:
        pass
    return "late"


@pytest.mark.parametrize("way", [_by_a_timeout, _by_a_cancel_scope, _by_a_task_group])
async def test_what_is_bound_to_the_task_before_its_first_wait_cancels_it_later(
    way: Callable[[Awaitable[None]], Awaitable[str]],
) -> None:
    begun = _begin(lambda: way(asyncio.sleep(60)))
    assert await asyncio.wait_for(begun.task, 10) == "late"


async def _value() -> str:
    await asyncio.sleep(0.01)
    return "value"


async def test_what_it_waits_for_first_may_be_awaited_by_others_too() -> None:
    shared = asyncio.create_task(_value())

    async def handler() -> str:
        return await shared

    begun = [_begin(handler), _begin(handler)]
    assert await shared == "value"
    assert [await one.task for one in begun] == ["value", "value"]


async def test_what_it_waits_for_first_may_be_awaited_by_its_own_children() -> None:
    async def handler() -> tuple[str, str]:
        shared = asyncio.create_task(_value())
        child = asyncio.create_task(also(shared))
        return await shared, await child

    async def also(shared: Awaitable[str]) -> str:
        return await shared

    assert await _begin(handler).task == ("value", "value")


async def test_what_it_waits_for_first_may_be_done_before_its_turn() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def handler() -> str:
        return await future

    begun = _begin(handler)
    future.set_result("done")
    assert await future == "done"
    assert await begun.task == "done"


async def test_what_nobody_can_wait_for_is_an_error_as_in_any_task() -> None:
    class Junk:
        def __await__(self) -> Any:
            yield "junk"

    async def handler() -> None:
        await Junk()

    with pytest.raises(RuntimeError, match="bad yield"):
        await _begin(handler).task
