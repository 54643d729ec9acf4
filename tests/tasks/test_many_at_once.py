"""What is done some at a time is done to all of them; and what is gone is nobody's."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from ekiden import CancelledTask, Context, TaskLimits
from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import tasks as postgres_tasks
from ekiden.tasks import runner
from ekiden.tasks.moves import Ending, LostClaim
from ekiden.tasks.run import Run
from ekiden.testing.task_contract import new_record
from tests.tasks.driving import PATIENCE, QUICK, TaskClient, new_server


async def test_one_sweep_fails_all_whose_time_is_over(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_OVERDUE_AT_ONCE", 2)
    server = new_server(store, tasks=TaskLimits(sweep_seconds=1000.0))

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        raise AssertionError("not reached")

    fields: dict[str, Any] = {"audience": "tasks", "arguments": {}, "created": time.time() - 5}
    for number in range(5):
        record = new_record(f"old {number}", ttl=1.0, due=None, state="waiting", **fields)
        await store.tasks.insert(record, {})
    async with server.running(), asyncio.timeout(PATIENCE):
        for number in range(5):
            while (record := await store.tasks.load(f"old {number}")).state != "failed":
                await asyncio.sleep(0.005)
            assert b"The task expired" in record.error


async def test_all_that_ended_long_ago_is_forgotten(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_tasks, "_FORGET_AT_ONCE", 2)
    for number in range(5):
        await store.tasks.insert(new_record(f"t{number}"), {})
        claimed = await store.tasks.claim(f"t{number}", now=1001.0, lease=10.0)
        await store.tasks.finish(f"t{number}", claimed.record.fence, Ending(result=b"{}"), {}, now=1002.0)
    await store.tasks.insert(new_record("new", created=9e9, updated=9e9, ttl=None), {})
    assert await store.tasks.forget(before=5000.0) == 5
    assert [await store.tasks.load(f"t{number}") for number in range(5)] == [None] * 5
    assert await store.tasks.load("new") is not None


async def test_nobody_owns_a_task_that_is_gone(store: Any) -> None:
    for change in (
        store.tasks.release("gone", 1, now=1000.0),
        store.tasks.tidied("gone", 1),
        store.tasks.finish("gone", 1, Ending(result=b"{}"), {}, now=1000.0),
    ):
        with pytest.raises(LostClaim):
            await change
    assert await store.tasks.claim("gone", now=1000.0, lease=10.0) is None


async def test_a_task_that_is_cancelled_while_it_runs_is_cleaned_up_with_what_it_had_done(store: Any) -> None:
    server = new_server(store)
    running, cleaned = asyncio.Event(), list[CancelledTask]()

    async def undo(task: CancelledTask) -> None:
        cleaned.append(task)

    def reserve() -> str:
        return "reserved"

    async def pay() -> str:
        running.set()
        await asyncio.Event().wait()
        return "paid"

    @server.tool(task="required", on_cancel=undo)
    async def tool(ctx: Context) -> str:
        await ctx.step(reserve)
        return await ctx.step(pay)

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await asyncio.wait_for(running.wait(), PATIENCE)
        await client.cancel(task_id)
        async with asyncio.timeout(PATIENCE):
            while not cleaned:
                await asyncio.sleep(0.005)
        assert (await client.get(task_id))["status"] == "cancelled"
    (task,) = cleaned
    assert list(task.steps.values()) == [["reserved"]]
    assert task.why == "cancelled"


async def test_a_worker_does_not_look_at_a_task_that_has_just_ended_there(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, looks = new_server(store, tasks=TaskLimits()), list[str]()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return str(await ctx.step(lambda: 1, key="one"))

    def look(run: Run) -> Any:
        looks.append(run.id)
        return asyncio.sleep(0)

    monkeypatch.setattr(Run, "_look", look)
    async with server.running(), asyncio.timeout(PATIENCE):
        client = TaskClient(server)
        assert await client.text(await client.start()) == "1"
    assert looks == []


async def test_a_look_that_begins_when_the_leg_has_ended_finds_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It changed in the last moment of the leg, which in memory is over within that pass of the loop."""
    server, looks = new_server(MemoryStore(), tasks=TaskLimits()), list[asyncio.Task[None]]()
    quieten = Run._quieten

    def changed_at_last(run: Run) -> None:
        run.look_soon()
        if run._looking is not None:
            looks.append(run._looking)
        quieten(run)

    monkeypatch.setattr(Run, "_quieten", changed_at_last)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return "done"

    async with server.running(), asyncio.timeout(PATIENCE):
        client = TaskClient(server)
        assert await client.text(await client.start()) == "done"
        assert looks
        await asyncio.gather(*looks)


async def test_who_only_waits_for_its_last_commit_takes_nobodys_room(store: Any) -> None:
    """But no more than as many again as may run."""
    server = new_server(store, tasks=msgspec.structs.replace(QUICK, concurrency=2, sweep_seconds=0.05))
    finish, may_finish, ran = store.tasks.finish, asyncio.Event(), list[int]()

    async def slow(*arguments: Any, **keywords: Any) -> Any:
        await may_finish.wait()
        return await finish(*arguments, **keywords)

    store.tasks.finish = slow

    @server.tool(task="required")
    async def tool(number: int) -> str:
        ran.append(number)
        return f"{number}"

    async with server.running(), asyncio.timeout(PATIENCE):
        client = TaskClient(server)
        task_ids = [await client.start(arguments={"number": number}) for number in range(7)]
        while len(ran) < 4:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        assert len(ran) == 4
        may_finish.set()
        assert [await client.text(task_id) for task_id in task_ids] == [f"{n}" for n in range(7)]
    assert sorted(ran) == list(range(7))


async def test_what_changes_is_looked_at_once_and_once_more_if_more_changes_meanwhile(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, looks = new_server(store, tasks=TaskLimits()), list[str]()
    load, running, go = store.tasks.load, asyncio.Event(), asyncio.Event()

    async def counted(task_id: str) -> Any:
        looks.append(task_id)
        return await load(task_id)

    async def work() -> str:
        running.set()
        await go.wait()
        return "done"

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return await ctx.step(work, key="work")

    async with server.running(), asyncio.timeout(PATIENCE):
        client = TaskClient(server)
        task_id = await client.start()
        await running.wait()
        run = server._rounds.tasks.runner._runs[task_id]  # type: ignore[union-attr]
        while run._looking is not None and not run._looking.done():
            await asyncio.sleep(0.005)
        monkeypatch.setattr(store.tasks, "load", counted)
        for changes, expected in ((1, 1), (3, 2)):
            looks.clear()
            for _ in range(changes):
                run.look_soon()
            assert run._looking is not None
            await run._looking
            assert looks == [task_id] * expected
        go.set()
        assert await client.text(task_id) == "done"
