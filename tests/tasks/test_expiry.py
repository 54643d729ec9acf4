"""Tasks whose time is over: nobody begins anything more, and the clean-up runs once all is known."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from ekiden import CancelledTask, Context, TaskLimits
from tests.tasks.driving import PATIENCE, TaskClient, comes_to, new_server

SHORT = TaskLimits(lease_seconds=0.6, sweep_seconds=0.05, keep_seconds=0.0, poll_seconds=0.01)
"""Forgets as soon as it may."""


async def receipt() -> str:
    return "receipt"


async def test_a_server_that_shares_the_store_decides_nothing_about_the_tasks_of_another(store: Any) -> None:
    """It has a tool of the same name, without a clean-up, and keeps its own tasks for a moment only."""
    ours, theirs = new_server(store, "ours"), new_server(store, "theirs", tasks=SHORT)
    cleaned: list[Mapping[str, Any]] = []

    async def clean(task: CancelledTask) -> None:
        cleaned.append(task.steps)

    @ours.tool(task="deferred", on_cancel=clean)
    async def pay(ctx: Context) -> str:
        await ctx.background(ttl=0.5)
        await ctx.step(receipt, key="charge")
        await ctx.elicit("Go on?", bool)
        return "never"

    @theirs.tool(name="pay", task="deferred")
    async def another(ctx: Context) -> str:
        return "never"

    async with ours.running():
        client = TaskClient(ours)
        task_id = await client.start("pay")
        await client.asked(task_id)
    async with theirs.running():
        await comes_to(store, task_id, "failing")
        for _ in range(5):
            await asyncio.sleep(SHORT.sweep_seconds)
        assert (await store.tasks.load(task_id)).state == "failing"
        async with ours.running():
            await comes_to(store, task_id, "failed")
    assert cleaned == [{"charge": ["receipt"]}]


async def test_a_task_is_not_forgotten_before_it_is_cleaned_up_after(store: Any) -> None:
    server = new_server(store, tasks=SHORT)
    cleaned: list[Mapping[str, Any]] = []

    async def charge() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE)
        await asyncio.sleep(20 * SHORT.sweep_seconds)
        return "receipt"

    async def clean(task: CancelledTask) -> None:
        cleaned.append(task.steps)

    @server.tool(task="deferred", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        await ctx.background(ttl=0.3)
        return await ctx.step(charge, key="charge")

    async with server.running():
        task_id = await TaskClient(server).start()
        async with asyncio.timeout(PATIENCE):
            while await store.tasks.load(task_id) is not None:
                await asyncio.sleep(0.005)
    assert cleaned == [{"charge": ["receipt"]}]


async def test_a_clean_up_is_told_of_a_step_that_outlives_its_handler(store: Any) -> None:
    """The handler has ended, and its leg waits for the step, when the time is over."""
    server = new_server(store)
    cleaned: list[Mapping[str, Any]] = []

    async def charge() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE)
        await asyncio.sleep(2.0)
        return "receipt"

    async def clean(task: CancelledTask) -> None:
        cleaned.append(task.steps)

    @server.tool(task="deferred", on_cancel=clean, timeout=0.5)
    async def tool(ctx: Context) -> str:
        await ctx.background(ttl=1.0)
        return await ctx.step(charge, key="charge")

    async with server.running():
        task_id = await TaskClient(server).start()
        await comes_to(store, task_id, "failed")
    assert cleaned == [{"charge": ["receipt"]}]


async def test_a_handler_that_will_not_stop_keeps_neither_its_clean_up_nor_its_place(store: Any) -> None:
    """That of a cancelled task may go on, and complete. Nobody waits for what comes of this one."""
    server = new_server(store)
    cleaned: list[str] = []
    over = asyncio.Event()

    async def clean(task: CancelledTask) -> None:
        cleaned.append(task.why)

    @server.tool(task="deferred", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        await ctx.background(ttl=0.5)
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()
        return "never"

    async with server.running():
        task_id = await TaskClient(server).start()
        await comes_to(store, task_id, "failed")
        over.set()
    assert cleaned == ["expired"]


async def test_a_worker_that_comes_late_begins_nothing(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has found yet that the time of the task is over."""
    server = new_server(store)
    ran: list[str] = []

    async def clean(task: CancelledTask) -> None:
        ran.append(task.why)

    @server.tool(task="required", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        ran.append("handler")
        await ctx.elicit("Go on?", bool)
        return "never"

    async def nothing(*, now: float, limit: int) -> list[str]:
        return []

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.asked(task_id)
    ran.clear()

    def is_late(record: Any) -> None:
        record.created -= record.ttl
        record.state, record.due = "queued", record.created

    await store.tasks.change(task_id, is_late)
    monkeypatch.setattr(store.tasks, "overdue", nothing)
    async with server.running():
        await comes_to(store, task_id, "failed")
    assert ran == ["expired"]


@pytest.mark.parametrize("why", ["cancelled", "expired"])
async def test_a_worker_that_stops_lets_a_clean_up_come_to_its_end(store: Any, why: str) -> None:
    server = new_server(store)
    begun, cleaned = asyncio.Event(), list[str]()

    async def clean(task: CancelledTask) -> None:
        begun.set()
        await asyncio.sleep(1.0)
        cleaned.append(task.why)

    @server.tool(task="deferred", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        await ctx.background(ttl=0.5 if why == "expired" else 600)
        await ctx.elicit("Go on?", bool)
        return "never"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        if why == "cancelled":
            await client.asked(task_id)
            await client.cancel(task_id)
        await begun.wait()
    assert cleaned == [why]
    assert (await store.tasks.load(task_id)).state == ("failed" if why == "expired" else "cancelled")
