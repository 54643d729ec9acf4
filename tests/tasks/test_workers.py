"""Several workers on one store: taking over, handing over, and never both at once."""

import asyncio
import itertools
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from ekiden import CancelledTask, Context, Server, TaskLimits
from ekiden.errors import LostClaim
from ekiden.stores.postgres import PostgresStore
from ekiden.testing.task_contract import new_record
from tests.simulation.virtual_time import clock
from tests.tasks.driving import PATIENCE, QUICK, TaskClient, accept, new_server


async def test_a_worker_that_stops_hands_over_after_its_step(store: Any) -> None:
    ran: list[tuple[str, int]] = []
    started, go = asyncio.Event(), asyncio.Event()

    def deploy(number: int) -> Server:
        server = new_server(store)

        async def slow() -> str:
            started.set()
            await go.wait()
            ran.append(("slow", number))
            return "slow"

        def quick() -> str:
            ran.append(("quick", number))
            return "quick"

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            first = await ctx.step(slow, key="slow")
            return f"{first} {await ctx.step(quick, key='quick')}"

        return server

    first, second = deploy(1), deploy(2)
    await first.endpoint.start()
    task_id = await TaskClient(first).start()
    async with asyncio.timeout(10):
        await started.wait()
    stopping = asyncio.create_task(first.endpoint.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    go.set()
    await stopping
    record = await store.tasks.load(task_id)
    assert (record.state, record.losses) == ("queued", 0)
    async with second.running():
        assert await TaskClient(second).text(task_id) == "slow quick"
    assert ran == [("slow", 1), ("quick", 2)]


async def test_a_lost_worker_is_replaced_within_a_lease_and_commits_nothing_any_more(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker stalls, as a process that is stopped does: it does not know that it is lost."""
    ran: list[tuple[str, int]] = []
    hold = asyncio.Event()

    def deploy(number: int) -> Server:
        server = new_server(store)

        async def work(what: str) -> str:
            if number == 1 and what == "b":
                await hold.wait()
            ran.append((what, number))
            return f"{what}{number}"

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            return " ".join([await ctx.step(work, what, key=what) for what in "abc"])

        return server

    first, second = deploy(1), deploy(2)

    async def no_renewal(self: Any) -> None:
        await asyncio.Event().wait()

    async with first.running():
        runner = first._rounds.tasks.runner  # type: ignore[union-attr]
        runner._loops[-1].cancel()
        runner._loops[-1] = asyncio.create_task(no_renewal(runner))
        runner._loops[0].cancel()  # Nor does it look for work.
        runner._unwatch()  # Nor does it hear of anything.
        task_id = await TaskClient(first).start()
        async with asyncio.timeout(10):
            while ran != [("a", 1)]:
                await asyncio.sleep(0.005)
        began = asyncio.get_running_loop().time()
        async with second.running():
            assert await TaskClient(second).text(task_id) == "a1 b2 c2"
            took = asyncio.get_running_loop().time() - began
            assert took < 2 * 0.6 or isinstance(store, PostgresStore)  # Its time is that of a real machine.
            hold.set()
            await asyncio.sleep(0.1)
            assert await TaskClient(second).text(task_id) == "a1 b2 c2"
        assert ran == [("a", 1), ("b", 2), ("c", 2), ("b", 1)], "c was not run by who had lost the task"
        entries = await store.tasks.entries(task_id)
        assert [entry.value for entry in entries.values()] == ["a1", "b2", "c2"]


async def test_a_task_whose_workers_keep_dying_is_given_up(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        raise AssertionError("not reached")

    await store.tasks.insert(
        new_record("poison", audience="tasks", tool="tool", arguments={}, ttl=None, losses=5), {}
    )
    async with server.running():
        failed = await TaskClient(server).until("poison", "failed")
    assert failed["error"]["code"] == -32603
    assert "workers" in failed["error"]["message"]
    assert "Task poison: The task was given up" in caplog.text


async def test_a_clean_up_whose_workers_keep_dying_is_given_up(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The task ends all the same: nothing is left that would take a worker with it for ever."""
    server, cleaned = new_server(store), list[str]()

    async def undo(task: CancelledTask) -> None:
        cleaned.append(task.task_id)

    @server.tool(task="required", on_cancel=undo)
    async def tool(ctx: Context) -> str:
        raise AssertionError("not reached")

    fields: dict[str, Any] = {"audience": "tasks", "arguments": {}, "ttl": None, "state": "tidying"}
    await store.tasks.insert(new_record("poison", losses=9, **fields), {})
    await store.tasks.insert(new_record("sound", losses=1, **fields), {})
    async with server.running(), asyncio.timeout(PATIENCE):
        for task_id in ("poison", "sound"):
            while (await store.tasks.load(task_id)).state != "cancelled":
                await asyncio.sleep(0.005)
    assert cleaned == ["sound"]
    assert "The clean-up of task poison was given up" in caplog.text


async def test_a_task_of_a_tool_that_is_not_here_waits_for_a_worker_that_has_it(store: Any) -> None:
    old, new = new_server(store), new_server(store)

    @old.tool(task="required")
    async def another(ctx: Context) -> str:
        return "another"

    @new.tool(task="required")
    async def tool(ctx: Context) -> str:
        return "here"

    await store.tasks.insert(new_record(audience="tasks", arguments={}, ttl=None), {})
    async with old.running():
        assert await TaskClient(old).text(await TaskClient(old).start("another")) == "another"
        assert (await store.tasks.load("task")).fence == 0, "whoever does not know the tool leaves it alone"
        async with new.running():
            assert await TaskClient(new).text("task") == "here"
    assert (await store.tasks.load("task")).fence == 1


async def test_a_task_whose_tool_is_removed_while_it_is_claimed_is_put_back(store: Any) -> None:
    """It waits until the next sweep there, and counts as no loss."""
    limits = msgspec.structs.replace(QUICK, sweep_seconds=5.0)
    leaving, staying = new_server(store, tasks=limits), new_server(store)

    @leaving.tool(task="required")
    async def another(ctx: Context) -> str:
        return "another"

    for server in (leaving, staying):

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            return "here"

    claim_all, put_back = store.tasks.claim_all, asyncio.Event()
    release = store.tasks.release

    async def removed_meanwhile(*arguments: Any, **keywords: Any) -> Any:
        leaving.remove_tool("tool")
        return await claim_all(*arguments, **keywords)

    async def noted(*arguments: Any, **keywords: Any) -> Any:
        await release(*arguments, **keywords)
        put_back.set()

    await store.tasks.insert(new_record(audience="tasks", arguments={}, ttl=None), {})
    store.tasks.claim_all, store.tasks.release = removed_meanwhile, noted
    async with leaving.running(), asyncio.timeout(PATIENCE):
        await put_back.wait()
        store.tasks.claim_all, store.tasks.release = claim_all, release
        kept = await store.tasks.load("task")
        assert (kept.state, kept.fence, kept.losses) == ("queued", 1, 0)
        assert kept.due > clock() + 3.0
        async with staying.running():
            assert await TaskClient(staying).text("task") == "here"


async def test_a_lost_claim_at_the_end_changes_nothing(store: Any) -> None:
    server = new_server(store)
    go, ended = asyncio.Event(), []

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        await go.wait()
        ended.append(1)
        return "mine"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        runner = server._rounds.tasks.runner  # type: ignore[union-attr]
        runner._unwatch()
        loops, runner._loops = runner._loops, []
        for loop in loops:
            loop.cancel()

        def steal(record: Any) -> None:
            record.fence += 1

        await store.tasks.change(task_id, steal)
        go.set()
        async with asyncio.timeout(10):
            while not ended or runner._runs:
                await asyncio.sleep(0.005)
        assert (await client.get(task_id))["status"] == "working"
        with pytest.raises(LostClaim):
            await store.tasks.release(task_id, 1, now=0.0)


async def test_an_answer_on_one_replica_wakes_a_worker_of_another(store: Any) -> None:
    front = new_server(store, tasks=TaskLimits(concurrency=0))
    back = new_server(store)
    for server in (front, back):

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            return str((await ctx.elicit("sure?", bool, key="sure")).data)

    async with front.running(), back.running():
        client = TaskClient(front)
        task_id = await client.start()
        await client.asked(task_id)
        await client.update(task_id, {"sure.1": accept(True)})
        assert await client.text(task_id) == "True"


async def test_a_worker_that_must_stop_before_its_step_has_ended_says_so_and_another_runs_it_again(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[int] = []
    started, never = asyncio.Event(), asyncio.Event()

    def deploy(number: int) -> Server:
        server = new_server(store)

        async def stubborn() -> int:
            ran.append(number)
            started.set()
            if number == 1:
                await never.wait()
            return number

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            return str(await ctx.step(stubborn, key="stubborn"))

        return server

    first, second = deploy(1), deploy(2)
    await first.endpoint.start()
    task_id = await TaskClient(first).start()
    async with asyncio.timeout(PATIENCE):
        await started.wait()
    runner = first._rounds.tasks.runner  # type: ignore[union-attr]
    with caplog.at_level(logging.WARNING, "ekiden.tasks"):
        await runner.stop(0.5)
    assert "Waiting up to 0.5 s for the running steps of tasks (tool)" in caplog.messages
    assert f"Task {task_id} has not come to a rest within 0.5 s" in caplog.text
    await asyncio.sleep(2 * QUICK.lease_seconds)
    assert (await store.tasks.load(task_id)).due < clock(), "nobody renews its lease"
    never.set()
    await first.endpoint.stop()
    assert (await store.tasks.load(task_id)).state == "running", "it is not put back: its step runs"
    assert await store.tasks.entries(task_id) == {}, "that it was cut off is not recorded"
    async with second.running():
        assert await TaskClient(second).text(task_id) == "2"
    assert ran == [1, 2]


async def test_a_worker_for_whom_others_are_faster_does_not_ask_without_a_pause(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it finds due, another one has claimed by the time that it tries."""
    server = new_server(store)
    tries = list[float]()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        raise AssertionError("not reached")

    async def too_late(*args: Any, **more: Any) -> list[Any]:
        tries.append(asyncio.get_running_loop().time())
        if len(tries) > 100:
            raise RuntimeError("that is enough")
        return []

    monkeypatch.setattr(store.tasks, "claim_all", too_late)
    fields: dict[str, Any] = {"audience": "tasks", "arguments": {}, "created": clock(), "due": clock()}
    await store.tasks.insert(new_record("t", ttl=None, **fields), {})
    async with server.running():
        await asyncio.sleep(1.0)
    pauses = [after - before for before, after in itertools.pairwise(tries)]
    assert len(tries) >= 10
    assert min(pauses) >= 0.015


async def begun_beside_a_last_try(
    store: Any, others: Mapping[str, int], *, has_progress: bool
) -> dict[str, float]:
    """Seconds after which others begin beside a last try. `others` says how many workers each has lost."""
    server = new_server(store)
    began = dict[str, float]()

    async def work(name: str) -> None:
        began[name] = asyncio.get_running_loop().time()
        await asyncio.sleep(3 * QUICK.lease_seconds)

    @server.tool(task="required")
    async def tool(name: str, ctx: Context) -> str:
        if has_progress:
            await ctx.step(lambda: None, key="progress")
        await ctx.step(work, name)
        return name

    async def put(name: str, losses: int) -> None:
        fields = {"audience": "tasks", "arguments": {"name": name}, "created": clock(), "due": clock()}
        await store.tasks.insert(new_record(name, ttl=None, losses=losses, **fields), {})

    async with server.running(), asyncio.timeout(PATIENCE):
        await put("frail", QUICK.attempts - 1)
        while "frail" not in began:
            await asyncio.sleep(0.01)
        for name, losses in others.items():
            await put(name, losses)
        while len(began) <= len(others):
            await asyncio.sleep(0.01)
    return {name: began[name] - began["frail"] for name in others}


async def test_a_task_in_its_last_try_is_alone_until_it_has_lived_for_a_lease(store: Any) -> None:
    """So that the others do not die with it, if it is what kills its workers."""
    waited = await begun_beside_a_last_try(store, {"sound": 0, "sound, too": 0}, has_progress=False)
    assert min(waited.values()) >= QUICK.lease_seconds - 0.05
    assert max(waited.values()) < 2 * QUICK.lease_seconds, "it is not waited for until it has ended"


async def test_a_task_that_makes_progress_is_no_suspect_any_more(store: Any) -> None:
    """From then on others run beside it, suspects too."""
    waited = await begun_beside_a_last_try(store, {"sound": 0, "suspect": 2}, has_progress=True)
    assert max(waited.values()) < QUICK.lease_seconds / 2


async def test_a_worker_that_stops_has_said_before_that_it_lives(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task was taken over. Else that would count as a worker that the task has killed."""
    server = new_server(store)
    saying, said = asyncio.Event(), list[bool]()
    survive = store.tasks.survive

    async def slow(*arguments: Any) -> bool:
        saying.set()
        await asyncio.sleep(1.0)
        said.append(await survive(*arguments))
        return said[-1]

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        await asyncio.Event().wait()
        return "never"

    monkeypatch.setattr(store.tasks, "survive", slow)
    async with asyncio.timeout(PATIENCE):
        async with server.running():
            task_id = await TaskClient(server).start()
            while (await store.tasks.load(task_id)).state != "running":
                await asyncio.sleep(0.01)
            taken = await store.tasks.claim(task_id, now=clock() + 1000.0, lease=2000.0)
            assert taken.record.losses == 1
            await saying.wait()
        assert said == [True]
    assert (await store.tasks.load(task_id)).losses == 0


async def test_a_worker_tries_whether_leases_can_be_renewed_when_one_has_run_out_and_only_then(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody can renew, silence says nothing. And a worker that has nothing to do writes nothing."""
    server, tries = new_server(store), list[float]()
    extend = store.tasks.extend

    async def counted(held: Any, *, until: float) -> Any:
        if not held:
            tries.append(asyncio.get_running_loop().time())
        return await extend(held, until=until)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return "done"

    monkeypatch.setattr(store.tasks, "extend", counted)
    fields: dict[str, Any] = {"audience": "tasks", "arguments": {}, "created": clock(), "ttl": None}
    async with server.running(), asyncio.timeout(PATIENCE):
        client = TaskClient(server)
        assert await client.text(await client.start()) == "done"
        await asyncio.sleep(1.0)
        assert tries == []
        await store.tasks.insert(new_record("silent", state="running", fence=1, due=clock(), **fields), {})
        while (await store.tasks.load("silent")).state == "running":
            await asyncio.sleep(0.01)
        assert len(tries) == 1
        assert await client.text("silent") == "done"
