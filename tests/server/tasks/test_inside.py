"""What a handler can do inside a task."""

import asyncio
import logging
from typing import Any

import pytest

from ekiden import CancelledTask, Context, Retry, Server, StepFailed
from tests.tasks.driving import QUICK, TaskClient, accept, comes_to, key_of, new_server


async def eventually(true: Any) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)


# Asking


async def test_questions_asked_together_are_open_together_and_answered_in_any_order(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        answers = await asyncio.gather(*(ctx.elicit(f"{n}?", str, key=f"k{n}") for n in range(3)))
        return " ".join(str(answer.data) for answer in answers)

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        assert set(await client.asked(task_id)) == {"k0.1", "k1.1", "k2.1"}
        await client.update(task_id, {"k2.1": accept("c"), "unknown": 5})
        assert set((await client.get(task_id))["inputRequests"]) == {"k0.1", "k1.1"}
        await client.update(task_id, {"k2.1": accept("too late"), "k0.1": accept("a")})
        assert set((await client.get(task_id))["inputRequests"]) == {"k1.1"}
        await client.update(task_id, {"k1.1": accept("b")})
        assert await client.text(task_id) == "a b c"


async def test_an_answer_that_does_not_do_is_asked_for_again_under_a_new_key(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("how many?", int, key="n")).data)

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        keys = []
        for answer in (accept("many"), "no answer at all", {"roots": []}, accept(3)):
            (key,) = await client.asked(task_id)
            keys.append(key)
            acknowledged = await client.update(task_id, {key: answer})
            assert set(acknowledged) == {"resultType", "_meta"}
            task = await client.get(task_id)
            assert key not in task.get("inputRequests", {})
        assert keys == ["n.1", "n.2", "n.3", "n.4"]
        assert await client.text(task_id) == "3"


async def test_decline_and_cancel_reach_the_handler(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        first, second = await ctx.elicit("1?", bool), await ctx.elicit("2?", bool)
        return f"{first.action} {second.action}"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        for action in ("decline", "cancel"):
            (key,) = await client.asked(task_id)
            await client.update(task_id, {key: {"action": action}})
        assert await client.text(task_id) == "decline cancel"


async def test_a_question_is_open_while_a_step_still_runs_and_its_answer_is_delivered(store: Any) -> None:
    server = new_server(store)
    legs, go, heard = [], asyncio.Event(), asyncio.Event()

    async def long() -> str:
        await go.wait()
        return "long"

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        legs.append(1)

        async def ask() -> str:
            answer = await ctx.elicit("meanwhile?", str, key="q")
            heard.set()
            return str(answer.data)

        return " ".join(await asyncio.gather(ctx.step(long), ask()))

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        assert set(await client.asked(task_id)) == {"q.1"}
        await client.update(task_id, {"q.1": accept("answered")})
        async with asyncio.timeout(10):
            await heard.wait()
        assert (await client.get(task_id))["status"] == "working"
        go.set()
        assert await client.text(task_id) == "long answered"
        assert len(legs) == 1, "the answer was delivered to the leg that was alive"


async def test_a_question_that_is_not_wanted_any_more_is_withdrawn(store: Any) -> None:
    server = new_server(store)
    go = asyncio.Event()

    async def wait() -> None:
        await go.wait()

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        asking = asyncio.create_task(ctx.elicit("still?", str, key="q"))
        await ctx.step(wait)
        asking.cancel()
        return str((await ctx.elicit("instead?", str, key="r")).data)

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        assert set(await client.asked(task_id)) == {"q.1"}
        go.set()
        await client.asks(task_id, "r.1")
        await client.update(task_id, {"r.1": accept("yes"), "q.1": accept("late")})
        assert await client.text(task_id) == "yes"


# Sleeping


async def test_a_sleep_ends_the_leg_and_a_worker_wakes_it(store: Any) -> None:
    now = [1_000_000.0]
    server = new_server(store, clock=lambda: now[0])
    legs = []

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        legs.append(1)
        begun = ctx.now()
        await ctx.sleep(3600)
        return f"{(ctx.now() - begun).total_seconds():.0f}"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await eventually(lambda: len(legs) == 1)
        await comes_to(store, task_id, "waiting")
        assert (await client.get(task_id))["status"] == "working"
        assert (await store.tasks.load(task_id)).due == 1_003_600.0
        now[0] += 3600
        assert await client.text(task_id) == "3600"
        assert len(legs) == 2


async def test_a_sleep_holds_back_no_question_and_an_answer_no_sleep(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        answer, _ = await asyncio.gather(ctx.elicit("now?", str), ctx.sleep(0.3))
        return str(answer.data)

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        (key,) = await client.asked(task_id)
        await client.update(task_id, {key: accept("yes")})
        assert (await client.get(task_id))["status"] == "working"
        assert await client.text(task_id) == "yes"


# Cancelling


async def test_a_task_that_waits_is_cancelled_at_once_and_its_handler_is_not_run(store: Any) -> None:
    server = new_server(store)
    legs: list[int] = []
    tidied: list[CancelledTask] = []

    def reserve(seat: int) -> dict[str, int]:
        return {"reservation": seat}

    async def undo(cancelled: CancelledTask) -> None:
        tidied.append(cancelled)

    @server.tool(task="required", on_cancel=undo)
    async def tool(seat: int, ctx: Context) -> str:
        legs.append(1)
        await ctx.step(reserve, seat)
        return str((await ctx.elicit("sure?", bool)).data)

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start("tool", {"seat": 7})
        other = await client.start("tool", {"seat": 8})
        await client.asked(task_id)
        await client.asked(other)
        before = len(legs)
        assert set((await client.cancel(task_id)).result) == {"resultType", "_meta"}
        task = await client.get(task_id)
        assert task["status"] == "cancelled"
        assert not {"result", "error", "inputRequests"} & set(task)
        await eventually(lambda: tidied)
        (cancelled,) = tidied
        assert (cancelled.task_id, cancelled.arguments) == (task_id, {"seat": 7})
        assert list(cancelled.steps.values()) == [[{"reservation": 7}]]
        await client.cancel(task_id)  # Again, and for nothing.
        assert len(legs) == before
        assert (await client.get(other))["status"] == "input_required"
        (key,) = await client.asked(other)
        await client.update(other, {key: accept(True)})
        assert await client.text(other) == "True"
        await client.cancel(other)
        assert (await client.get(other))["status"] == "completed"
        assert len(tidied) == 1


async def test_a_running_handler_is_cancelled_and_may_clean_up_with_steps(store: Any) -> None:
    server = new_server(store)
    running, ran = asyncio.Event(), []

    async def endless() -> None:
        running.set()
        await asyncio.sleep(100)

    def undo() -> None:
        ran.append("undo")

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        try:
            await ctx.step(endless)
        finally:
            await ctx.step(undo)
        return "never"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        async with asyncio.timeout(10):
            await running.wait()
        await client.cancel(task_id)
        await client.until(task_id, "cancelled")
        assert ran == ["undo"]


async def test_a_shielded_step_ends_and_a_handler_may_complete_all_the_same(store: Any) -> None:
    server = new_server(store)
    paying, go, paid = asyncio.Event(), asyncio.Event(), []

    async def pay() -> str:
        paying.set()
        await go.wait()
        paid.append("paid")
        return "paid"

    @server.tool(task="required")
    async def shielded(ctx: Context) -> str:
        await asyncio.shield(ctx.step(pay))
        return "never"

    @server.tool(task="required")
    async def stubborn(ctx: Context) -> str:
        step = asyncio.ensure_future(ctx.step(pay))
        try:
            await asyncio.shield(step)
        except asyncio.CancelledError:
            return f"{await step} all the same"
        return "never"

    async with server.running():
        client = TaskClient(server)
        for name in ("shielded", "stubborn"):
            paying.clear()
            go.clear()
            task_id = await client.start(name)
            async with asyncio.timeout(10):
                await paying.wait()
            await client.cancel(task_id)
            await asyncio.sleep(0.05)
            assert (await client.get(task_id))["status"] == "working"
            go.set()
            if name == "shielded":
                await client.until(task_id, "cancelled")
            else:
                assert await client.text(task_id) == "paid all the same"
        assert paid == ["paid", "paid"]


# Steps


async def test_a_step_is_retried_by_its_policy_with_one_key(store: Any) -> None:
    server = new_server(store)
    keys: list[str] = []

    @server.tool(task="required")
    async def tool(good_after: int, ctx: Context) -> str:
        async def flaky() -> str:
            keys.append(ctx.step_key)
            if len(keys) < good_after:
                raise ConnectionError(f"down {len(keys)}")
            return f"up after {len(keys)}"

        try:
            return await ctx.step(flaky, retry=Retry(attempts=3, seconds=0.01, on=(ConnectionError,)))
        except StepFailed as failed:
            return f"{failed.type}: {failed.message}"

    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start("tool", {"good_after": 3})) == "up after 3"
        assert len(set(keys)) == 1
        keys.clear()
        assert await client.text(await client.start("tool", {"good_after": 9})) == "ConnectionError: down 3"
        assert len(keys) == 3


async def test_the_count_of_tries_survives_the_worker_and_a_long_wait_holds_nothing(store: Any) -> None:
    now = [1_000_000.0]
    servers = [new_server(store, clock=lambda: now[0]) for _ in range(2)]
    tries: list[int] = []
    running = [0]
    for server in servers:

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            def flaky() -> str:
                tries.append(running[0])
                raise ConnectionError("down")

            try:
                return await ctx.step(flaky, retry=Retry(attempts=2, seconds=600, most_seconds=600))
            except StepFailed:
                return "given up"

    async with servers[0].running():
        client = TaskClient(servers[0])
        task_id = await client.start()
        await comes_to(store, task_id, "waiting")
    now[0] += 600
    running[0] = 1
    async with servers[1].running():
        assert await TaskClient(servers[1]).text(task_id) == "given up"
    assert tries == [0, 1]


async def test_retries_in_a_round_work_too(store: Any) -> None:
    server = new_server(store)
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("down")
        return "up"

    @server.tool
    async def tool(ctx: Context) -> str:
        return await ctx.step(flaky, retry=Retry(seconds=0.001))

    result = await TaskClient(server).call_tool("tool")
    assert result["content"][0]["text"] == "up"


async def test_a_handler_that_was_changed_fails_and_says_where(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    def charge(account: str) -> None:
        ran.append("charge")

    def deploy(server: Server, *, changed: bool) -> None:
        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            if not changed:
                await ctx.step(charge, "4711")
            await ctx.elicit("sure?", bool, key="sure")
            return "done"

    old, new = new_server(store), new_server(store)
    deploy(old, changed=False)
    deploy(new, changed=True)
    async with old.running():
        client = TaskClient(old)
        task_id = await client.start()
        await client.asked(task_id)
    async with new.running():
        client = TaskClient(new)
        with caplog.at_level(logging.ERROR):
            await client.update(task_id, {"sure.1": accept(True)})
            failed = await client.until(task_id, "failed")
    assert failed["error"]["code"] == -32603
    assert "NonDeterminismError" in failed["error"]["message"]
    assert "charge" in failed["error"]["message"]
    assert ran == ["charge"]
    # The log also names the arguments of the step, which its client may not know.
    assert "4711" in caplog.text
    assert "4711" not in failed["error"]["message"]


async def test_a_reworded_question_is_asked_anew_and_the_old_one_withdrawn(store: Any) -> None:
    def deploy(server: Server, wording: str) -> None:
        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            first, second = await asyncio.gather(
                ctx.elicit(wording, bool, key="a"), ctx.elicit("same?", bool, key="b")
            )
            return f"{first.data} {second.data}"

    old, new = new_server(store), new_server(store)
    deploy(old, "old?")
    deploy(new, "new?")
    async with old.running():
        task_id = await TaskClient(old).start()
        await TaskClient(old).asked(task_id)
    async with new.running():
        client = TaskClient(new)
        await client.update(task_id, {"b.1": accept(True)})
        requests = await client.asks(task_id, "a.2")
        assert key_of(requests, "new?") == "a.2"
        await client.update(task_id, {"a.1": accept(False), "a.2": accept(True)})
        assert await client.text(task_id) == "True True"


async def test_checkpoint_and_on_complete_in_a_task(store: Any) -> None:
    server = new_server(store)
    ran: list[str] = []

    def note(what: str) -> None:
        ran.append(what)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        ctx.on_complete(note, "after")
        drawn = ctx.random()
        await ctx.checkpoint()
        await ctx.elicit("sure?", bool, key="sure")
        return f"{drawn}"

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await client.asked(task_id)
        entries = await store.tasks.entries(task_id)
        assert [entry.kind for entry in entries.values()] == ["draw", "pause"]
        assert ran == []
        await client.update(task_id, {"sure.1": accept(True)})
        assert await client.text(task_id) == str(next(iter(entries.values())).value)
        assert ran == ["after"]


async def test_plain_functions_can_be_tasks(store: Any) -> None:
    server = new_server(store)

    @server.tool(task="optional")
    def tool(n: int) -> int:
        return n + 1

    async with server.running():
        client = TaskClient(server)
        task = await client.until(await client.start("tool", {"n": 1}), "completed")
        assert task["result"]["structuredContent"] == {"result": 2} or task["result"]["content"]


async def test_more_tasks_than_room_are_run_one_after_another(store: Any) -> None:
    import msgspec

    server = new_server(store, tasks=msgspec.structs.replace(QUICK, concurrency=2))
    running, most = 0, 0
    in_pairs = asyncio.Barrier(2)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await in_pairs.wait()
        running -= 1
        return "done"

    async with server.running():
        client = TaskClient(server)
        tasks = [await client.start() for _ in range(8)]
        for task_id in tasks:
            assert await client.text(task_id) == "done"
    assert most == 2
