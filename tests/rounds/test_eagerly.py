"""A coroutine that is begun at once has a task as any other, from its first moment."""

import asyncio
import contextvars
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from ekiden.rounds.eagerly import EagerTask, eager_task


async def _nothing() -> None:
    pass


def _begin(function: Callable[[], Any]) -> EagerTask:
    """As a leg does it."""
    begun = eager_task(asyncio.get_running_loop())
    begun.begin(function(), "a tool")
    if not begun.done:
        begun.hand_over()
    return begun


@pytest.fixture(params=["new", "just used", "used and idle"], autouse=True)
async def _task(request: pytest.FixtureRequest) -> None:
    """What is promised of a task is promised of one that has served before."""
    if request.param != "new":
        _begin(_nothing).let_go()
    if request.param == "used and idle":
        await asyncio.sleep(0)


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
    begun.let_go()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == [task]


async def test_a_task_that_somebody_keeps_is_done_soon_after_its_coroutine() -> None:
    async def handler() -> Any:
        return asyncio.current_task()

    begun = _begin(handler)
    task = begun.result()
    begun.let_go()  # As a leg does that has ended.
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


# A task at which nobody looked serves the next coroutine, too

_renews = sys.version_info < (3, 12)


async def _who() -> int:
    return id(asyncio.current_task())


def _next() -> int:
    begun = _begin(_who)
    found: int = begun.result()
    begun.let_go()
    return found


async def test_a_task_at_which_nobody_looked_serves_again() -> None:
    first = _next()
    for _ in range(3):
        assert (_next() == first) or not _renews
        await asyncio.sleep(0)
    assert len([task for task in asyncio.all_tasks() if task.get_name() == "a tool"]) <= 1


_kept: list[Any] = []
_weakly: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def _mark(task: Any) -> None:
    task.mine = "secret"


def _cancel_and_forgive(task: Any) -> None:
    task.cancel()
    task.uncancel()


@pytest.mark.parametrize(
    "lay_hands_on",
    [
        _kept.append,
        lambda task: _kept.append(weakref.ref(task)),
        lambda task: _weakly.__setitem__(task, "secret"),
        lambda task: task.add_done_callback(_kept.append),
        _mark,
        lambda task: task.cancel(),
        _cancel_and_forgive,
        lambda task: _kept.append(asyncio.ensure_future(task)),
        lambda task: _kept.append(asyncio.shield(task)),
        lambda task: _kept.append(asyncio.wait_for(task, 1)),
    ],
)
async def test_a_task_that_somebody_laid_hands_on_serves_nobody_else(lay_hands_on: Any) -> None:
    async def handler() -> Any:
        task = asyncio.current_task()
        lay_hands_on(task)
        return id(task)

    first = _begin(handler)
    before = first.result()
    alive = first.task
    first.let_go()
    del first
    assert _next() != before
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert alive.done()
    assert _next() != before
    for kept in _kept:
        if asyncio.iscoroutine(kept):
            kept.close()
    _kept.clear()


async def test_a_task_whose_coroutine_failed_serves_again_only_if_the_error_does_not_hold_it() -> None:
    async def handler() -> None:
        task = asyncio.current_task()
        raise LookupError(task)

    begun = _begin(handler)
    error = begun.exception()
    assert isinstance(error, LookupError)
    begun.let_go()
    assert _next() != id(error.args[0])
    await asyncio.wait_for(error.args[0], 5)


_variable: contextvars.ContextVar[str] = contextvars.ContextVar("_variable", default="unset")


async def test_what_a_coroutine_sets_is_unset_for_the_next_and_kept_over_its_own_waits() -> None:
    async def handler(value: str) -> list[str]:
        seen = [_variable.get()]
        _variable.set(value)
        await asyncio.sleep(0)
        seen.append(_variable.get())
        seen.append(await asyncio.create_task(child()))
        return seen

    async def child() -> str:
        return _variable.get()

    async def short() -> str:
        found = _variable.get()
        _variable.set("short")
        return found

    for value in ("one", "two"):
        begun = _begin(short)
        assert begun.result() == "unset"
        begun.let_go()
        waiting = _begin(lambda: handler(value))  # noqa: B023  called at once
        assert await waiting.task == ["unset", value, value]
    assert _variable.get() == "unset"


async def test_the_name_is_that_of_the_newest_coroutine() -> None:
    async def handler() -> str:
        task = asyncio.current_task()
        assert task is not None
        name = task.get_name()
        task.set_name("mine")
        return name

    for _ in range(2):
        begun = _begin(handler)
        assert begun.result() == "a tool"
        begun.let_go()


async def test_whoever_cancels_all_tasks_hits_no_coroutine_that_comes_later() -> None:
    before = _next()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    after = _begin(lambda: asyncio.sleep(0.01, "slept"))
    assert await after.task == "slept"
    del before


def test_a_spare_task_ends_with_its_loop_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    async def main() -> None:
        seen.append(_next())
        await asyncio.sleep(0)

    with caplog.at_level(logging.DEBUG, "asyncio"):
        for _ in range(3):
            asyncio.run(main())
            loop = asyncio.new_event_loop()
            loop.run_until_complete(main())
            loop.close()
            gc.collect()
        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        thread.join()
        gc.collect()
    assert len(seen) == 7
    assert [record.message for record in caplog.records if "selector" not in record.message] == []


async def test_a_call_within_a_call_has_a_task_of_its_own() -> None:
    async def outer() -> tuple[int, int]:
        inner = _begin(_who)
        found = inner.result()
        inner.let_go()
        return id(asyncio.current_task()), found

    for _ in range(3):
        begun = _begin(outer)
        mine, inner = begun.result()
        assert mine != inner
        begun.let_go()
