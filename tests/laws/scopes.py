"""The ways in which people bound what they wait for, and what each says of itself afterwards."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio


async def move_on_after(seconds: float, work: Awaitable[Any]) -> str:
    value: Any = "nothing"
    with anyio.move_on_after(seconds) as scope:
        value = await work
    return f"{value}, caught: {scope.cancelled_caught}, called: {scope.cancel_called}"


async def fail_after(seconds: float, work: Awaitable[Any]) -> str:
    try:
        with anyio.fail_after(seconds) as scope:
            return str(await work)
    except TimeoutError:
        return f"timed out, caught: {scope.cancelled_caught}"


async def timeout(seconds: float, work: Awaitable[Any]) -> str:
    try:
        async with asyncio.timeout(seconds) as scope:
            return str(await work)
    except TimeoutError:
        return f"timed out, expired: {scope.expired()}"


async def nested_timeouts(seconds: float, work: Awaitable[Any]) -> str:
    """The outer one fires right after the inner one; which of them is blamed is a matter of luck."""
    try:
        async with asyncio.timeout(seconds * 1.2):
            try:
                async with asyncio.timeout(seconds):
                    return str(await work)
            except TimeoutError:
                return "timed out"
    except TimeoutError:
        return "timed out"


async def nested_scopes(seconds: float, work: Awaitable[Any]) -> str:
    """The inner one fires, the outer one does not."""
    value: Any = "nothing"
    with anyio.move_on_after(30) as outer, anyio.move_on_after(seconds) as inner:
        value = await work
    return f"{value}, inner: {inner.cancelled_caught}, outer: {outer.cancelled_caught}"


async def outer_scope_first(seconds: float, work: Awaitable[Any]) -> str:
    """The outer one fires, the inner one does not."""
    value: Any = "nothing"
    with anyio.move_on_after(seconds) as outer, anyio.move_on_after(30) as inner:
        value = await work
    return f"{value}, inner: {inner.cancelled_caught}, outer: {outer.cancelled_caught}"


async def wait_for(seconds: float, work: Awaitable[Any]) -> str:
    try:
        return str(await asyncio.wait_for(work, seconds))
    except TimeoutError:
        return "timed out"


async def cancelled_task(seconds: float, work: Awaitable[Any]) -> str:
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    (value,) = await asyncio.gather(task, return_exceptions=True)
    return f"{value!r}, cancelled: {task.cancelled()}"


async def cancelled_twice(seconds: float, work: Awaitable[Any]) -> str:
    """As one who is in a hurry does."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=seconds)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    return "cancelled" if task.cancelled() else str(task.result())


async def anyio_group(seconds: float, work: Awaitable[Any]) -> str:
    told = ["nothing"]

    async def waits() -> None:
        told[0] = str(await work)

    async with anyio.create_task_group() as group:
        group.start_soon(waits)
        await anyio.sleep(seconds)
        group.cancel_scope.cancel()
    return f"{told[0]}, caught: {group.cancel_scope.cancelled_caught}"


Scope = Callable[[float, Awaitable[Any]], Awaitable[str]]

SCOPES: tuple[Scope, ...] = (
    move_on_after,
    fail_after,
    timeout,
    nested_timeouts,
    nested_scopes,
    outer_scope_first,
    wait_for,
    cancelled_task,
    cancelled_twice,
    anyio_group,
)

ENDING = SCOPES[:-1]
"""Those that end as soon as what they wait for does."""
