"""One owner: a claim on a round has one owner from its taking to its end, and outlives nobody."""

import asyncio
import gc
from typing import Any

import pytest

from ekiden import Context, InputRequired, RoundLimits
from ekiden.stores.memory import MemoryStore
from ekiden.stores.memory import store as memory
from tests.acceptance.driving import call
from tests.laws import steps
from tests.laws.driving import (
    SHORT_LEASE,
    UNABLE,
    Client,
    Faulty,
    Handler,
    TaskClient,
    accept,
    new_server,
    serve,
    settled,
    soon,
)
from tests.laws.steps import begun, noted

LONG_LEASE = RoundLimits(lease_seconds=60)
YES = {"k": accept(True)}


def beside(function: Any, *arguments: Any, late: bool = True, how: str = "fails") -> Handler:
    """A step beside a sibling that ends the call: it fails, or asks for what the client cannot do."""

    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")

        async def sibling() -> None:
            if late:
                await steps.until_begun("pay")
            if how == "fails":
                raise ValueError("sibling")
            await ctx.sample("poem", max_tokens=9)

        await asyncio.gather(ctx.step(function, "pay", *arguments), sibling())
        return "never"

    return tool


# No end while a step runs


@pytest.mark.parametrize("how", ["fails", "asks"])
@pytest.mark.parametrize("function", [steps.lasting, steps.lasting_thread])
async def test_a_call_does_not_end_before_its_steps_have(store: Any, function: Any, how: str) -> None:
    client = Client(serve(beside(function, 0.06, how=how), store=store), capabilities=UNABLE)
    first = await client.ask("tool")
    await client.reply(first, YES)
    assert noted == ["begin pay", "end pay"]


@pytest.mark.parametrize("how", ["fails", "asks"])
@pytest.mark.parametrize("function", [steps.held, steps.held_thread])
async def test_while_a_step_of_a_failed_call_runs_a_repeat_waits(store: Any, function: Any, how: str) -> None:
    client = Client(serve(beside(function, how=how), store=store), capabilities=UNABLE)
    first = await client.ask("tool")
    playing = [asyncio.create_task(client.reply(first, YES))]
    await steps.until_begun("pay")
    playing += [asyncio.create_task(client.reply(first, YES)) for _ in range(3)]
    done, _ = await asyncio.wait(playing, timeout=0.08)
    steps.gate("pay").set()
    steps.door("pay").set()
    told = [await one for one in playing]
    assert not done
    assert noted == ["begin pay", "end pay"]
    assert len(set(told)) == 1
    assert told[0] != "no reply"


@pytest.mark.parametrize("how", ["fails", "asks"])
@pytest.mark.parametrize("late", [False, True])
async def test_repeats_of_a_failed_call_are_answered(store: Any, late: bool, how: str) -> None:
    server = serve(beside(steps.lasting, 0.03, late=late, how=how), store=store, rounds=LONG_LEASE)
    client = Client(server, capabilities=UNABLE)
    first = await client.ask("tool")
    told = [await client.reply(first, YES) for _ in range(3)]
    assert len(set(told)) == 1
    assert told[0] != "no reply"
    assert begun("pay") <= 1


@pytest.mark.parametrize("how", ["fails", "asks"])
async def test_failed_calls_leave_no_task_behind(store: Any, how: str) -> None:
    server = serve(beside(steps.lasting, 0.005, late=False, how=how), store=store, rounds=LONG_LEASE)
    async with server.running():
        client = Client(server, capabilities=UNABLE)
        await client.reply(await client.ask("tool"), YES)
        before = len(asyncio.all_tasks())
        for _ in range(10):
            first = await client.ask("tool")
            assert await client.reply(first, YES) != "no reply"
        assert await settled(before) == []


@pytest.mark.parametrize("function", [steps.lasting, steps.lasting_thread])
async def test_a_task_does_not_end_before_its_steps_have(function: Any) -> None:
    async def tool(ctx: Context) -> str:
        async def fail() -> None:
            await steps.until_begun("pay")
            raise ValueError("sibling")

        await asyncio.gather(ctx.step(function, "pay", 0.06), fail())
        return "never"

    server = serve(tool, store=MemoryStore(), task="required")
    async with server.running():
        client = TaskClient(server)
        await client.until(await client.start(), "completed", "failed")
        assert noted == ["begin pay", "end pay"]


# Claims that come late


def moody(moods: list[str]) -> Handler:
    """Fails beside its step, or asks for what not every client can do; and once more it does neither."""

    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")

        async def sibling() -> None:
            match moods.pop(0) if moods else "":
                case "fails":
                    raise ValueError("sibling")
                case "asks":
                    await ctx.sample("poem", max_tokens=9)

        done, _ = await asyncio.gather(ctx.step(steps.quick, "pay"), sibling())
        return done

    return tool


@pytest.mark.parametrize("seconds", [0.0, 0.05])
@pytest.mark.parametrize("mood", ["fails", "asks"])
async def test_a_claim_that_arrives_after_the_end_is_given_back(
    faulty: Faulty, mood: str, seconds: float
) -> None:
    moods: list[str] = []
    client = Client(serve(moody(moods), store=faulty, rounds=LONG_LEASE), capabilities=UNABLE)
    first = await client.ask("tool")
    moods.append(mood)
    faulty.delays["claim"] = seconds
    told = await client.reply(first, YES)
    assert told in ("failed: Tool 'tool' failed", "error -32021")
    await asyncio.sleep(seconds)
    faulty.delays.clear()
    assert await client.reply(first, YES) in (told, "did pay")
    assert begun("pay") <= 1


async def test_a_claim_that_arrives_when_the_client_has_left_is_given_back() -> None:
    store = Faulty()

    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")
        return await ctx.step(steps.quick, "pay")

    server = serve(tool, store=store, rounds=LONG_LEASE)
    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        store.delays["claim"] = 0.1
        leaving = asyncio.create_task(client.retry(first, YES))
        async with asyncio.timeout(30):
            while "claim" not in store.calls:
                await asyncio.sleep(0.005)
        leaving.cancel()
        await asyncio.wait([leaving])
        store.delays.clear()
        assert await client.reply(first, YES) == "did pay"
    assert begun("pay") == 1


# Renewal


def long_step(seconds: float = 0.8) -> Handler:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")
        return await ctx.step(steps.lasting, "pay", seconds)

    return tool


@pytest.mark.parametrize("once", ["auto", True])
@pytest.mark.parametrize("failures", [1, 2])
async def test_renewal_survives_errors_of_the_store(failures: int, once: Any) -> None:
    store = Faulty()
    one, other = (Client(serve(long_step(0.6), store=store, rounds=SHORT_LEASE, once=once)) for _ in range(2))
    first = await one.ask("tool")
    store.failures["renew"] = failures
    running = asyncio.create_task(one.reply(first, YES))
    await steps.until_begun("pay")
    repeats = [asyncio.create_task(other.reply(first, YES)) for _ in range(2)]
    assert [await running, *[await repeat for repeat in repeats]] == ["pay"] * 3
    assert noted == ["begin pay", "end pay"]


@pytest.mark.parametrize("once", ["auto", True])
@pytest.mark.parametrize("method", ["claim", "renew", "commit", "finish"])
async def test_what_a_store_cancels_by_itself_is_tried_again(method: str, once: Any) -> None:
    store = Faulty()
    store.waits = True
    client = Client(serve(long_step(0.6), store=store, rounds=SHORT_LEASE, once=once))
    first = await client.ask("tool")
    store.cancels[method] = 1
    told = await client.reply(first, YES)
    assert told == (
        "error -32603" if method == "claim" else "pay"
    )  # Nothing had begun: the client tries again.
    assert await client.reply(first, YES) == "pay"
    assert noted == ["begin pay", "end pay"]
    assert await settled(1) == []


async def test_a_call_whose_step_is_cancelled_from_outside_ends() -> None:
    store = Faulty()
    store.delays["commit"] = 1.0

    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")
        before = asyncio.all_tasks()
        paying = asyncio.ensure_future(ctx.step(steps.quick, "pay"))
        await steps.until_ended("pay")
        for task in asyncio.all_tasks() - before - {paying}:
            task.cancel()
        return await paying

    client = Client(serve(tool, store=store, rounds=SHORT_LEASE))
    first = await client.ask("tool")
    assert await client.reply(first, YES) == "error -32603"
    assert await settled(1) == []


async def test_a_store_that_was_away_for_longer_than_a_lease_costs_no_second_begin() -> None:
    store = Faulty()
    one, other = (Client(serve(long_step(0.9), store=store, rounds=SHORT_LEASE)) for _ in range(2))
    first = await one.ask("tool")
    running = asyncio.create_task(one.reply(first, YES))
    await steps.until_begun("pay")
    store.away = True
    await asyncio.sleep(0.4)
    store.away = False
    await asyncio.sleep(0.2)
    assert await other.reply(first, YES) == "pay"
    assert await running == "pay"
    assert noted == ["begin pay", "end pay"]


async def test_a_store_that_is_away_when_a_step_ends_is_waited_for() -> None:
    store = Faulty()
    one, other = (Client(serve(long_step(0.1), store=store, rounds=SHORT_LEASE)) for _ in range(2))
    first = await one.ask("tool")
    running = asyncio.create_task(one.reply(first, YES))
    await steps.until_begun("pay")
    store.away = True
    await steps.until_ended("pay")
    await asyncio.sleep(0.1)
    store.away = False
    assert await running == "pay"
    assert await other.reply(first, YES) == "pay"
    assert noted == ["begin pay", "end pay"]


@pytest.mark.parametrize("method", ["claim", "commit", "finish", "release"])
@pytest.mark.parametrize("failures", [1, 2])
async def test_an_error_of_the_store_anywhere_begins_nothing_twice(method: str, failures: int) -> None:
    store = Faulty()
    client = Client(serve(long_step(0.02), store=store, rounds=SHORT_LEASE))
    first = await client.ask("tool")
    store.failures[method] = failures
    told = [await client.reply(first, YES) for _ in range(3 + failures)]
    assert told[-1] == "pay"
    assert set(told) <= {"pay", "error -32603"}
    assert begun("pay") == 1


async def test_many_that_wait_do_not_keep_the_owner_from_renewing(shared: Any) -> None:
    lease = RoundLimits(lease_seconds=0.5)
    clients = [Client(serve(long_step(0.9), store=shared, rounds=lease)) for _ in range(3)]
    first = await clients[0].ask("tool")
    told = await asyncio.gather(*(clients[n % 3].reply(first, YES) for n in range(150)))
    assert set(told) == {"pay"}
    assert noted == ["begin pay", "end pay"]


async def test_a_step_longer_than_its_lease_has_one_owner_in_a_failed_call_too(shared: Any) -> None:
    clients = [Client(serve(beside(steps.lasting, 0.7), store=shared, rounds=SHORT_LEASE)) for _ in range(2)]
    first = await clients[0].ask("tool")
    told = await asyncio.gather(*(clients[n % 2].reply(first, YES) for n in range(4)))
    assert len(set(told)) == 1
    assert noted == ["begin pay", "end pay"]


# What is left behind


async def test_a_contested_round_leaves_nothing_behind(store: Any) -> None:
    server = serve(long_step(0.01), store=store)

    async def contest(rounds: int) -> None:
        client = Client(server)
        for _ in range(rounds):
            first = await client.ask("tool")
            told = await asyncio.gather(*(client.reply(first, YES) for _ in range(3)))
            assert told == ["pay"] * 3

    async with server.running():
        await contest(3)
        tasks, events = len(asyncio.all_tasks()), _events()
        await contest(10)
        assert await settled(tasks) == []
        assert _events() <= events + 1


async def test_a_round_that_another_process_owned_leaves_nothing_behind(shared: Any) -> None:
    owner, waiter = (Client(serve(long_step(0.02), store=shared)) for _ in range(2))

    async def contest(rounds: int) -> None:
        for number in range(rounds):
            first = await owner.ask("tool")
            running = asyncio.create_task(owner.reply(first, YES))
            await steps.until_begun("pay", times=len([one for one in noted if one == "end pay"]) + 1)
            assert await waiter.reply(first, YES) == "pay", number
            assert await running == "pay"

    await contest(2)
    events = _events()
    await contest(4)
    assert _events() <= events + 1


def _events() -> int:
    gc.collect()
    return sum(isinstance(kept, asyncio.Event) for kept in gc.get_objects())


# The memory of one process


async def test_a_running_round_is_not_forgotten_for_more_others_than_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_MOST_ROUNDS", 100)
    server = new_server(store=MemoryStore())

    @server.tool(once=True)
    async def others(ctx: Context) -> InputRequired:
        return InputRequired(request_state="next")

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")
        return await ctx.step(steps.held, "pay")

    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        running = asyncio.create_task(client.reply(first, YES))
        await steps.until_begun("pay")
        state = (await client.ask("others")).state
        async with asyncio.timeout(25), server.connect() as channel:
            for number in range(105):
                await channel.send(call("others", {}, number, requestState=state))
                state = (await channel.receive())["result"]["requestState"]
        repeat = asyncio.create_task(client.reply(first, YES))
        await asyncio.wait([repeat], timeout=0.1)
        steps.gate("pay").set()
        assert [await running, await repeat] == ["did pay"] * 2
    assert begun("pay") == 1


async def large(number: int) -> int:
    noted.append(f"begin large {number}")
    return number


async def test_a_running_round_is_not_forgotten_for_large_others() -> None:
    server = new_server()

    @server.tool
    async def others(number: int, ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")
        await ctx.step(large, number)
        return "x" * 4_000_000

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.elicit("begin?", bool, key="k")
        return await ctx.step(steps.held, "pay")

    async with server.running():
        client = Client(server)
        client.patience = 25
        first = await client.ask("tool")
        running = asyncio.create_task(client.reply(first, YES))
        await steps.until_begun("pay")
        for number in range(20):
            other = await client.ask("others", {"number": number})
            await client.retry(other, YES, "others", {"number": number})
        repeat = asyncio.create_task(client.reply(first, YES))
        await asyncio.wait([repeat], timeout=0.1)
        steps.gate("pay").set()
        assert await soon(running) == "did pay"
        assert await soon(repeat) == "did pay"
    assert begun("pay") == 1


async def test_a_repeat_of_a_round_that_sleeps_waits_for_its_owner() -> None:
    """A copy that came late would sleep less, and do what comes after the sleep before its time, or twice."""
    store, after = MemoryStore(), list[str]()

    async def tool(ctx: Context) -> str:
        await ctx.elicit("ok?", bool, key="k")
        await ctx.sleep(0.5)
        after.append("slept")
        return "done"

    one, other = (Client(serve(tool, store=store)) for _ in range(2))
    first = await one.ask("tool")
    replies = await asyncio.gather(*(client.reply(first, {"k": accept(True)}) for client in (one, other)))
    assert (replies, after) == (["done", "done"], ["slept"])
