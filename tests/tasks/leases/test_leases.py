"""Workers that are slow, frozen or cut off: nothing is begun on a guess, and nobody innocent is given up."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ekiden import CancelledTask, Context, Server, StoreUnavailable
from ekiden.server import handlers
from ekiden.testing.task_contract import new_record
from tests.tasks.driving import PATIENCE, QUICK, TaskClient, new_server


def runner_of(server: Server) -> Any:
    return server._rounds.tasks.runner  # type: ignore[union-attr]


async def forget_the_world(server: Server) -> None:
    """As a process that is frozen: it renews nothing, looks for nothing and hears nothing."""
    runner = runner_of(server)
    for loop in runner._loops:
        loop.cancel()
    await asyncio.wait(runner._loops)
    runner._unwatch()


async def test_a_worker_that_was_frozen_begins_no_step_that_its_successor_has(store: Any) -> None:
    ran: list[tuple[str, int]] = []
    thawed = asyncio.Event()

    def deploy(number: int) -> Server:
        server = new_server(store)

        async def work(what: str) -> str:
            ran.append((what, number))
            return f"{what}{number}"

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            first = await ctx.step(work, "a", key="a")
            if number == 1:
                await thawed.wait()
            return f"{first} {await ctx.step(work, 'b', key='b')}"

        return server

    first, second = deploy(1), deploy(2)
    async with first.running():
        task_id = await TaskClient(first).start()
        async with asyncio.timeout(PATIENCE):
            while ran != [("a", 1)]:
                await asyncio.sleep(0.005)
        await forget_the_world(first)
        async with second.running():
            assert await TaskClient(second).text(task_id) == "a1 b2"
            thawed.set()
            async with asyncio.timeout(PATIENCE):
                while runner_of(first)._runs:
                    await asyncio.sleep(0.005)
    assert ran == [("a", 1), ("b", 2)]


async def test_a_task_is_not_blamed_for_a_worker_that_comes_back(store: Any) -> None:
    """It was frozen for longer than its lease, in the middle of a step, and lives."""
    began: list[int] = []
    go = {1: asyncio.Event(), 2: asyncio.Event()}

    def deploy(number: int) -> Server:
        server = new_server(store)

        async def work() -> str:
            began.append(number)
            await go[number].wait()
            return f"done by {number}"

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            return await ctx.step(work, key="work")

        return server

    first, second = deploy(1), deploy(2)
    async with first.running():
        task_id = await TaskClient(first).start()
        async with asyncio.timeout(PATIENCE):
            while not began:
                await asyncio.sleep(0.005)
            await forget_the_world(first)
            async with second.running():
                while began != [1, 2]:
                    await asyncio.sleep(0.005)
                assert (await store.tasks.load(task_id)).losses == 1
                go[1].set()
                while (await store.tasks.load(task_id)).losses:
                    await asyncio.sleep(0.005)
                go[2].set()
                assert await TaskClient(second).text(task_id) == "done by 2"


async def test_a_worker_that_was_frozen_while_it_saved_what_led_to_a_step_does_not_begin_it(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was drawn before a step is saved before it begins. The worker freezes while it waits for that."""
    ran: list[int] = []
    saved, thawed = asyncio.Event(), asyncio.Event()
    usual = store.tasks.append

    async def frozen(task_id: str, fence: int, entries: Any) -> Any:
        state = await usual(task_id, fence, entries)
        if fence == 1:
            saved.set()
            await thawed.wait()
        return state

    monkeypatch.setattr(store.tasks, "append", frozen)

    def deploy(number: int) -> Server:
        server = new_server(store)

        async def work() -> str:
            ran.append(number)
            return f"done by {number}"

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            ctx.uuid()
            return await ctx.step(work, key="work")

        return server

    first, second = deploy(1), deploy(2)
    async with first.running():
        task_id = await TaskClient(first).start()
        async with asyncio.timeout(PATIENCE):
            await saved.wait()
        await forget_the_world(first)
        async with second.running():
            assert await TaskClient(second).text(task_id) == "done by 2"
            thawed.set()
            async with asyncio.timeout(PATIENCE):
                while runner_of(first)._runs:
                    await asyncio.sleep(0.005)
    assert ran == [2]


async def test_after_an_outage_those_who_hold_tasks_renew_before_others_claim(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is away for much longer than a lease; both workers live all the time."""
    ran: list[int] = []
    go = asyncio.Event()
    away = False

    def deploy(number: int) -> Server:
        server = new_server(store)

        async def work() -> str:
            ran.append(number)
            await go.wait()
            return "done"

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            return await ctx.step(work, key="work")

        return server

    tasks = store.tasks
    for name in ("change", "append", "load", "due", "next_due", "claim_all", "extend", "overdue", "forget"):
        usual = getattr(tasks, name)

        async def flaky(*arguments: Any, _usual: Any = usual, **keywords: Any) -> Any:
            if away:
                raise StoreUnavailable("away")
            return await _usual(*arguments, **keywords)

        monkeypatch.setattr(tasks, name, flaky)
    first, second = deploy(1), deploy(2)
    async with first.running(), second.running():
        started = [await TaskClient(first).start() for _ in range(5)]
        async with asyncio.timeout(PATIENCE):
            while len(ran) < 5:
                await asyncio.sleep(0.005)
        away = True
        await asyncio.sleep(3 * QUICK.lease_seconds)
        away = False
        await asyncio.sleep(2 * QUICK.lease_seconds)
        go.set()
        for task_id in started:
            assert await TaskClient(second).text(task_id) == "done"
    assert ran == [1] * 5


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
async def test_one_unexpected_error_ends_neither_renewal_nor_dispatch(
    error: type[BaseException], store: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server(store)
    go = asyncio.Event()
    failures = {"extend": 3, "due": 3, "overdue": 1} if error is RuntimeError else {"extend": 3}

    for name in failures:
        usual = getattr(store.tasks, name)

        async def flaky(*arguments: Any, _name: str = name, _usual: Any = usual, **keywords: Any) -> Any:
            if failures[_name]:
                failures[_name] -= 1
                raise error("nobody expected this")
            return await _usual(*arguments, **keywords)

        monkeypatch.setattr(store.tasks, name, flaky)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        await go.wait()
        return "done"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        async with asyncio.timeout(PATIENCE):
            while any(failures.values()):
                await asyncio.sleep(0.01)
        await asyncio.sleep(2 * QUICK.lease_seconds)
        await store.tasks.insert(new_record("other", audience="tasks", arguments={}, ttl=None), {})
        go.set()
        assert await client.text("other") == "done"
        assert await client.text(task_id) == "done"
        assert (await store.tasks.load(task_id)).fence == 1, "its lease was renewed all the time"
    assert "Leases cannot be renewed" in caplog.text


async def test_suspects_that_have_to_wait_hold_nobody_else_up(store: Any) -> None:
    """There are more of them than a worker looks at, all of one principal, and all were due before."""
    server = new_server(store)
    go = asyncio.Event()

    async def work(name: str) -> str:
        if name.startswith("suspect"):
            await go.wait()
        return name

    @server.tool(task="required")
    async def tool(name: str, ctx: Context) -> str:
        return await ctx.step(work, name, key="work")

    async def insert(name: str, **more: Any) -> None:
        fields = {"audience": "tasks", "arguments": {"name": name}, "ttl": None, **more}
        await store.tasks.insert(new_record(name, **fields), {})

    lost: dict[str, Any] = {"state": "running", "fence": 3, "due": time.time() - 9}
    await asyncio.gather(*(insert(f"suspect {number}", losses=2, **lost) for number in range(250)))
    await insert("lost", **{**lost, "due": time.time() - 5})
    await insert("fresh", due=time.time())
    async with server.running():
        client = TaskClient(server)
        try:
            assert await client.text("fresh") == "fresh"
            assert await client.text("lost") == "lost"
        finally:
            go.set()


async def test_what_expires_or_is_given_up_is_cleaned_up(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server(store)
    cleaned: list[tuple[str, str]] = []

    async def undo(task: CancelledTask) -> None:
        cleaned.append((task.task_id, task.why))

    @server.tool(task="required", on_cancel=undo)
    async def tool(ctx: Context) -> str:
        raise AssertionError("not reached")

    fields: dict[str, Any] = {"audience": "tasks", "arguments": {}, "created": time.time() - 5}
    await store.tasks.insert(new_record("old", ttl=1.0, due=None, state="waiting", **fields), {})
    await store.tasks.insert(new_record("poison", ttl=None, losses=5, **fields), {})
    async with server.running():
        client = TaskClient(server)
        failed = await client.until("poison", "failed")
        assert "workers" in failed["error"]["message"]
        async with asyncio.timeout(PATIENCE):
            while len(cleaned) < 2:
                await asyncio.sleep(0.01)
    assert sorted(cleaned) == [("old", "expired"), ("poison", "given up")]
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["Task poison: The task was given up: its workers were lost too often"]


async def test_a_flood_of_one_principal_lets_others_have_their_turn(store: Any) -> None:
    """With room for two at a time, somebody else's task does not wait for a hundred of them."""
    ended: list[str] = []
    limits = type(QUICK)(lease_seconds=5.0, sweep_seconds=0.1, concurrency=2)
    server = new_server(store, tasks=limits)

    @server.tool(task="required")
    async def tool(name: str, ctx: Context) -> str:
        await asyncio.sleep(0.01)
        ended.append(name)
        return "done"

    usual: dict[str, Any] = {"audience": "tasks", "ttl": None}
    flood = [
        new_record(f"flood {number}", principal="loud", arguments={"name": "flood"}, **usual)
        for number in range(100)
    ]
    await asyncio.gather(*(store.tasks.insert(record, {}) for record in flood))
    late = new_record("quiet", principal="quiet", arguments={"name": "quiet"}, due=1001.0, **usual)
    await store.tasks.insert(late, {})
    async with server.running(), asyncio.timeout(PATIENCE):
        while "quiet" not in ended:
            await asyncio.sleep(0.005)
    assert ended.index("quiet") < 6


async def test_a_step_that_waited_for_a_thread_begins_only_if_the_task_is_still_held(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads are busy, and the worker freezes meanwhile. Its successor has no thread to wait for."""
    ran: list[int] = []
    go = threading.Event()
    threads = ThreadPoolExecutor(1)
    monkeypatch.setattr(handlers, "_threads", lambda: threads)
    threads.submit(go.wait, PATIENCE)

    def deploy(number: int) -> Server:
        server = new_server(store)

        def in_thread() -> str:
            ran.append(number)
            return f"done by {number}"

        async def work() -> str:
            return in_thread()

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            return await ctx.step(in_thread if number == 1 else work, key="work")

        return server

    first, second = deploy(1), deploy(2)
    async with first.running():
        task_id = await TaskClient(first).start()
        async with asyncio.timeout(PATIENCE):
            while threads._work_queue.empty():
                await asyncio.sleep(0.005)
        await forget_the_world(first)
        async with second.running():
            assert await TaskClient(second).text(task_id) == "done by 2"
            go.set()
            async with asyncio.timeout(PATIENCE):
                while runner_of(first)._runs:
                    await asyncio.sleep(0.005)
    threads.shutdown()
    assert ran == [2]
