"""A task at the worst moment: taken over unseen, cancelled at rest, answered while it waits."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from ekiden import CancelledTask, Context, Retry, StoreUnavailable, TaskLimits
from tests.tasks.driving import PATIENCE, QUICK, TaskClient, accept, comes_to, new_server

PATIENT = TaskLimits(lease_seconds=60.0, sweep_seconds=0.1, message_seconds=0.05, poll_seconds=0.01)
"""A lease that no test waits for."""
OVER = b'{"code": -32603, "message": "The task expired"}'


async def test_a_task_that_was_taken_over_silently_is_stopped_by_the_next_renewal(store: Any) -> None:
    """No signal tells of it, and the handler comes to no step in which it would find out."""
    server = new_server(store)
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()
        return "never"

    async with server.running():
        task_id = await TaskClient(server).start()
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        taken = await store.tasks.claim(task_id, now=time.time() + 100, lease=3600.0)
        assert taken is not None
        async with asyncio.timeout(PATIENCE):
            await cancelled.wait()
        kept = await store.tasks.load(task_id)
        assert (kept.state, kept.fence) == ("running", taken.fence), "the row is its new owner's"


async def test_a_task_that_is_cancelled_at_the_moment_of_rest_is_cleaned_up_at_once(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when the lease of its leg has run out."""
    server = new_server(store, tasks=PATIENT)
    cleaned: list[str] = []
    suspend = store.tasks.suspend

    async def cancelled_first(task_id: str, *arguments: Any, **keywords: Any) -> Any:
        assert await store.tasks.cancel(task_id, now=time.time(), tidy=True)
        return await suspend(task_id, *arguments, **keywords)

    async def clean(task: CancelledTask) -> None:
        cleaned.append(task.task_id)

    @server.tool(task="required", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Go on?", bool)
        return "never"

    monkeypatch.setattr(store.tasks, "suspend", cancelled_first)
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.until(task_id, "cancelled")
        await comes_to(store, task_id, "cancelled")
    assert cleaned == [task_id]


async def test_a_clean_up_is_told_of_a_step_that_was_committed_when_its_task_was_cancelled(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler hears of the cancellation first, and never of the step. Who cleans up hears of the step."""
    server = new_server(store, tasks=PATIENT)
    done: list[Mapping[str, Any]] = []
    append = store.tasks.append

    async def cancelled_first(task_id: str, *arguments: Any) -> Any:
        assert await store.tasks.cancel(task_id, now=time.time(), tidy=True)
        return await append(task_id, *arguments)

    async def charge() -> str:
        return "receipt"

    async def clean(task: CancelledTask) -> None:
        done.append(task.steps)

    @server.tool(task="required", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        return await ctx.step(charge, key="charge")

    monkeypatch.setattr(store.tasks, "append", cancelled_first)
    async with server.running():
        client = TaskClient(server)
        await client.until(await client.start(), "cancelled")
        async with asyncio.timeout(PATIENCE):
            while not done:
                await asyncio.sleep(0.005)
    assert done == [{"charge": ["receipt"]}]


async def test_a_clean_up_is_told_of_a_step_in_a_thread_that_ran_on_when_its_task_was_cancelled(
    store: Any,
) -> None:
    """It cannot be cut short: what it does is done, although the handler goes on without it."""
    server = new_server(store, tasks=PATIENT)
    done: list[Mapping[str, Any]] = []
    begun, go = threading.Event(), threading.Event()

    def charge() -> str:
        begun.set()
        assert go.wait(PATIENCE)
        return "receipt"

    async def clean(task: CancelledTask) -> None:
        done.append(task.steps)

    @server.tool(task="required", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        try:
            return await ctx.step(charge, key="charge")
        finally:
            go.set()

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        await client.cancel(task_id)
        async with asyncio.timeout(PATIENCE):
            while not done:
                await asyncio.sleep(0.005)
        kept = await store.tasks.entries(task_id)
    assert done == [{"charge": ["receipt"]}]
    assert kept["s:charge"].value == "receipt"


async def test_a_clean_up_is_told_of_a_step_that_did_not_let_itself_be_cancelled(store: Any) -> None:
    server = new_server(store, tasks=PATIENT)
    done: list[Mapping[str, Any]] = []
    begun = asyncio.Event()

    async def charge() -> str:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE)
        return "receipt"

    async def clean(task: CancelledTask) -> None:
        done.append(task.steps)

    @server.tool(task="required", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        return await ctx.step(charge, key="charge")

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await begun.wait()
        await client.cancel(task_id)
        async with asyncio.timeout(PATIENCE):
            while not done:
                await asyncio.sleep(0.005)
    assert done == [{"charge": ["receipt"]}]


async def test_a_clean_up_of_a_task_whose_time_is_over_waits_for_the_running_step_and_is_told_of_it(
    store: Any,
) -> None:
    """The client is told at once. No other worker cleans up meanwhile, however long the step takes."""
    servers = [new_server(store), new_server(store)]
    cleaned: list[tuple[str, Mapping[str, Any]]] = []
    committed = asyncio.Event()

    async def charge() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE)
        await asyncio.sleep(10 * QUICK.lease_seconds)
        committed.set()
        return "receipt"

    async def clean(task: CancelledTask) -> None:
        assert committed.is_set()
        cleaned.append((task.why, task.steps))

    for server in servers:

        @server.tool(task="deferred", on_cancel=clean)
        async def tool(ctx: Context) -> str:
            await ctx.background(ttl=0.5)
            return await ctx.step(charge, key="charge")

    async with servers[0].running(), servers[1].running():
        client = TaskClient(servers[0])
        task_id = await client.start()
        await client.until(task_id, "failed")
        assert not committed.is_set()
        await comes_to(store, task_id, "failed")
        kept = await store.tasks.entries(task_id)
    assert cleaned == [("expired", {"charge": ["receipt"]})]
    assert kept["s:charge"].value == "receipt"


@pytest.mark.parametrize("end", ["finish", "suspend"])
async def test_a_task_whose_time_is_over_at_the_moment_when_its_leg_ends_is_cleaned_up_at_once(
    store: Any, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Its client was told that it has failed, whatever the handler returns after that."""
    server = new_server(store, tasks=PATIENT)
    cleaned: list[tuple[str, Mapping[str, Any]]] = []
    ending = getattr(store.tasks, end)

    async def charge() -> str:
        return "receipt"

    async def over_first(task_id: str, *arguments: Any, **keywords: Any) -> Any:
        later = (await store.tasks.load(task_id)).expires
        await store.tasks.expire([task_id], OVER, now=later, message="over")
        return await ending(task_id, *arguments, **keywords)

    async def clean(task: CancelledTask) -> None:
        cleaned.append((task.why, task.steps))

    @server.tool(task="required", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        await ctx.step(charge, key="charge")
        if end == "suspend":
            await ctx.elicit("Go on?", bool)
        return "paid"

    monkeypatch.setattr(store.tasks, end, over_first)
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.until(task_id, "failed")
        await comes_to(store, task_id, "failed")
    assert cleaned == [("expired", {"charge": ["receipt"]})]


async def test_a_task_whose_time_was_over_for_a_server_without_its_tool_ends_without_a_clean_up(
    store: Any,
) -> None:
    """Whoever does not know the tool leaves it to the worker to say that there is nothing to clean up."""
    server = new_server(store, tasks=PATIENT)
    begun = asyncio.Event()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        begun.set()
        await asyncio.sleep(3600)
        return "never"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await begun.wait()
        later = (await store.tasks.load(task_id)).expires
        await store.tasks.expire([task_id], OVER, now=later, message="over")
        await comes_to(store, task_id, "failed")


@pytest.mark.parametrize("what", [SystemExit, asyncio.CancelledError, ValueError])
async def test_a_clean_up_that_raises_anything_ends_its_task_and_not_its_worker(
    store: Any, what: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server(store, tasks=PATIENT)
    cleaned: list[str] = []

    async def clean(task: CancelledTask) -> None:
        cleaned.append(task.task_id)
        raise what

    @server.tool(task="required", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Go on?", bool)
        return "never"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.asked(task_id)
        await client.cancel(task_id)
        await comes_to(store, task_id, "cancelled")
    assert cleaned == [task_id]
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == [f"The clean-up of task {task_id} failed"]


async def test_a_task_that_is_taken_over_at_the_moment_of_rest_is_its_new_owners(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = new_server(store, tasks=PATIENT)
    suspend, cleaned = store.tasks.suspend, list[str]()

    def steal(record: Any) -> None:
        record.fence += 1
        record.state = "stopping"  # The new owner is told to stop; this is not for the old one to do.

    async def taken_first(task_id: str, *arguments: Any, **keywords: Any) -> Any:
        await store.tasks.change(task_id, steal)
        return await suspend(task_id, *arguments, **keywords)

    async def clean(task: CancelledTask) -> None:
        cleaned.append(task.task_id)

    @server.tool(task="required", on_cancel=clean)
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Go on?", bool)
        return "never"

    monkeypatch.setattr(store.tasks, "suspend", taken_first)
    async with server.running():
        task_id = await TaskClient(server).start()
        runner = server._rounds.tasks.runner  # type: ignore[union-attr]
        async with asyncio.timeout(PATIENCE):
            while (await store.tasks.load(task_id)).fence == 1 or runner._runs:
                await asyncio.sleep(0.005)
        kept = await store.tasks.load(task_id)
    assert (kept.state, kept.fence) == ("stopping", 2)
    assert cleaned == []


async def test_an_answer_does_not_shorten_the_wait_before_a_step_is_tried_again(store: Any) -> None:
    """The answer begins a new leg. What it finds in the journal of the failed step counts there, too."""
    server = new_server(store)
    tries: list[float] = []
    wait = 1.0

    async def flaky() -> str:
        tries.append(time.time())
        if len(tries) == 1:
            raise ConnectionError("not yet")
        return "done"

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        step = ctx.step(flaky, retry=Retry(attempts=2, seconds=wait))
        done, answer = await asyncio.gather(step, ctx.elicit("Go on?", bool, key="go"))
        return f"{done} {answer.data}"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await comes_to(store, task_id, "waiting")
        assert len(tries) == 1
        await client.update(task_id, {"go.1": accept(True)})
        assert await client.text(task_id) == "done True"
    assert len(tries) == 2
    assert tries[1] - tries[0] >= wait - 0.01


async def test_an_answer_that_could_not_be_kept_at_first_is_kept_later(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes to the journal with the next question. If that fails, it goes there with the end of the leg."""
    server = new_server(store)
    refused: list[set[str]] = []
    failed = asyncio.Event()
    publish = store.tasks.publish

    async def failing_once(
        task_id: str, fence: int, leaves: Any, entries: Mapping[str, Any], **more: Any
    ) -> Any:
        if entries and not refused:
            refused.append({entry.kind for entry in entries.values()})
            failed.set()
            raise StoreUnavailable("away for a moment")
        return await publish(task_id, fence, leaves, entries, **more)

    async def work() -> str:
        async with asyncio.timeout(PATIENCE):
            await failed.wait()
        return "worked"

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        async def ask() -> str:
            first = await ctx.elicit("First?", str, key="first")
            second = await ctx.elicit("Second?", str, key="second")
            return f"{first.data} {second.data}"

        return " ".join(await asyncio.gather(ctx.step(work), ask()))

    monkeypatch.setattr(store.tasks, "publish", failing_once)
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.asks(task_id, "first.1")
        await client.update(task_id, {"first.1": accept("one")})
        await comes_to(store, task_id, "waiting")
        await client.asks(task_id, "second.1")
        await client.update(task_id, {"second.1": accept("two")})
        assert await client.text(task_id) == "worked one two"
    assert refused == [{"answer"}]


async def test_an_answer_that_the_handler_passes_over_does_not_have_it_run_once_more(store: Any) -> None:
    """It came while the handler ran, and that run did not ask for it any more."""
    server = new_server(store, tasks=msgspec.structs.replace(QUICK, sweep_seconds=1000.0))
    runs = list[str]()
    working, go = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        working.set()
        await go.wait()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        runs.append("begun")
        first = ctx.elicit("First?", bool, key="first")
        if len(runs) == 1:
            await asyncio.gather(first, ctx.elicit("Beside?", bool, key="beside"))
        await first
        await ctx.step(work, key="work")
        await ctx.elicit("Last?", bool, key="last")
        return "done"

    async with server.running(), asyncio.timeout(PATIENCE):
        client = TaskClient(server)
        task_id = await client.start()
        await client.asks(task_id, "first.1", "beside.1")
        await client.update(task_id, {"first.1": accept(True)})
        await working.wait()
        run = server._rounds.tasks.runner._runs[task_id]  # type: ignore[union-attr]
        await client.update(task_id, {"beside.1": accept(True)})
        while "beside.1" not in run._leg.seen:  # type: ignore[union-attr]
            await asyncio.sleep(0.005)
        go.set()
        while (kept := await store.tasks.load(task_id)).state == "running":
            await asyncio.sleep(0.005)
        assert (kept.state, kept.due) == ("waiting", None)
        await client.update(task_id, {"last.1": accept(True)})
        assert await client.text(task_id) == "done"
    assert len(runs) == 3
