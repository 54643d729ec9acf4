"""The task of a coroutine that was begun at once: made when somebody needs it, and then as any other."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from ekiden.rounds.eagerly import EagerTask


def _begin(function: Callable[[], Any]) -> EagerTask:
    return EagerTask(asyncio.get_running_loop(), function(), "a tool")


def _is_made(task: Any) -> bool:
    return task in asyncio.all_tasks()


async def test_a_coroutine_that_ends_at_once_has_a_task_that_is_never_made() -> None:
    async def handler() -> Any:
        return asyncio.current_task()

    begun = _begin(handler)
    task = begun.result()
    assert begun.done
    assert task is begun.task
    assert isinstance(task, asyncio.Task)
    assert not _is_made(task)


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (lambda task: task.get_name(), "a tool"),
        (lambda task: task.get_loop() is asyncio.get_running_loop(), True),
        (lambda task: task.done(), False),
        (lambda task: task.cancelling(), 0),
        (lambda task: "name='a tool'" in repr(task) and "handler()" in repr(task), True),
        (lambda task: task.get_coro().cr_code.co_name, "handler"),
        (lambda task: task in asyncio.all_tasks() or task.done() or task in asyncio.all_tasks(), True),
        (lambda task: task.__class__.__mro__[1] is asyncio.Task, True),
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
    assert not _is_made(begun.task)
    begun.keep(begun.task)
    assert _is_made(begun.task)
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
    assert (begun.done, begun.result(), ended) == (True, "done", [])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == [begun.task]


async def test_a_task_that_is_looked_at_after_its_end_ends() -> None:
    async def handler() -> Any:
        return asyncio.current_task()

    begun = _begin(handler)
    task = begun.result()
    del begun.task  # As a leg does that has ended.
    assert not task.done()
    await asyncio.sleep(0)
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
    begun.keep(begun.task)
    assert await asyncio.wait_for(begun.task, 10) == "late"


async def test_a_task_that_was_never_made_leaves_nothing_behind() -> None:
    async def handler() -> None:
        pass

    gc.collect()
    gone = weakref.ref(_begin(handler).task)
    gc.collect()
    assert gone() is None
