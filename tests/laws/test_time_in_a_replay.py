"""A replay takes other time than the first run: timers run ahead, and I/O of the handler's own is late."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from ekiden import Context
from ekiden.testing import ScriptedClient
from tests.laws import steps
from tests.laws.driving import Client, Handler, accept, new_server, serve, soon, text, yes

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
noted: list[str] = []


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    noted.clear()


async def work(name: str, seconds: float) -> str:
    noted.append(name)
    await asyncio.sleep(seconds)
    return name


async def save(seen: list[str]) -> str:
    noted.append("save")
    return " ".join(seen)


async def charge(who: str) -> str:
    return f"{who} paid by {tenant.get()}"


async def play(handler: Handler) -> str:
    result = await soon(ScriptedClient(serve(handler), yes).call_tool("tool"), 15.0)
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


async def test_a_timer_that_runs_ahead_cuts_nothing_that_was_not_cut() -> None:
    async def tool(ctx: Context) -> str:
        async def hangs() -> str:
            try:
                async with asyncio.timeout(0.3):
                    return await ctx.step(work, "hangs", 9)
            except TimeoutError:
                return "timed out"

        async def in_time() -> str:
            await ctx.step(work, "first", 0.25)
            try:
                async with asyncio.timeout(0.15):
                    return await ctx.step(work, "second", 0.1)
            except TimeoutError:
                return await ctx.step(work, "fallback", 0)

        seen = await asyncio.gather(hangs(), in_time())
        await ctx.elicit("ok?", bool)
        return " ".join(seen)

    assert await play(tool) == "timed out second"
    assert sorted(noted) == ["first", "hangs", "second"]


async def test_branches_are_cut_in_the_order_of_old() -> None:
    async def tool(ctx: Context) -> str:
        seen: list[str] = []

        async def cut(name: str, before: float, seconds: float) -> None:
            await ctx.step(work, f"before {name}", before)
            try:
                async with asyncio.timeout(seconds):
                    await ctx.step(work, name, 9)
            except TimeoutError:
                seen.append(name)

        await asyncio.gather(cut("a", 0.25, 0.15), cut("b", 0, 0.3))
        saved = await ctx.step(save, seen)
        await ctx.elicit("ok?", bool)
        return saved

    assert await play(tool) == "b a"
    assert noted.count("save") == 1


async def test_one_deadline_over_several_steps_is_waited_for() -> None:
    async def tool(ctx: Context) -> str:
        seen: list[str] = []
        try:
            async with asyncio.timeout(0.3):
                seen.append(await ctx.step(work, "first", 0.25))
                seen.append(await ctx.step(work, "hangs", 9))
        except TimeoutError:
            seen.append("timed out")
        await ctx.elicit("ok?", bool)
        return " ".join(seen)

    assert await play(tool) == "first timed out"
    assert noted == ["first", "hangs"]


async def test_a_branch_that_reads_first_is_waited_for() -> None:
    async def tool(ctx: Context) -> str:
        async def reads() -> str:
            await asyncio.sleep(0.1)
            return await ctx.step(work, "read", 0)

        seen = [await each for each in asyncio.as_completed([reads(), ctx.step(work, "slow", 0.3)])]
        saved = await ctx.step(save, seen)
        await ctx.elicit("ok?", bool)
        return saved

    assert await play(tool) == "read slow"
    assert noted.count("save") == 1


async def test_a_step_runs_with_the_context_variables_of_its_own_branch() -> None:
    async def tool(ctx: Context) -> str:
        async def asks() -> str:
            tenant.set("A")
            await ctx.step(work, "slow", 0.2)
            await ctx.elicit("ok?", bool)
            return await ctx.step(charge, "a")

        async def reads() -> str:
            tenant.set("B")
            await asyncio.sleep(0.1)
            return await ctx.step(charge, "b")

        async def pauses() -> str:
            await ctx.checkpoint()
            tenant.set("C")
            return await ctx.step(charge, "c")

        return ", ".join(await asyncio.gather(asks(), reads(), pauses()))

    assert await play(tool) == "a paid by A, b paid by B, c paid by C"


async def test_a_step_whose_task_is_cancelled_by_its_function_has_failed() -> None:
    async def leaves() -> str:
        noted.append("leaves")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)
        return "stayed"

    async def tool(ctx: Context) -> str:
        await ctx.elicit("ok?", bool)
        try:
            return await ctx.step(leaves)
        except Exception as error:
            return type(error).__name__

    assert await play(tool) == "StepFailed"
    assert noted == ["leaves"]


async def test_what_a_plain_function_gives_to_await_is_awaited() -> None:
    async def fetch(number: int) -> int:
        return number + 1

    async def tool(ctx: Context) -> str:
        found: Any = await ctx.step(lambda: fetch(1), key="fetch")
        return str(found)

    assert await play(tool) == "2"


# Sleeps


async def test_sleeps_of_branches_that_change_their_places_stay_their_own() -> None:
    reading = iter([(0.01, 0.05), (0.05, 0.01)])
    woke: list[str] = []

    async def tool(ctx: Context) -> str:
        async def sleeps(name: str, reads: float, seconds: float) -> None:
            await asyncio.sleep(reads)
            await ctx.sleep(seconds)
            woke.append(name)

        first, second = next(reading)
        await asyncio.gather(
            sleeps("short", first, 0.2),
            sleeps("long", second, 0.5),
            ctx.elicit("ok?", bool),
            ctx.step(work, "meanwhile", 0.1),
        )
        return " ".join(woke)

    assert await play(tool) == "short long"


@pytest.mark.parametrize("key", [None, "nap"])
async def test_a_sleep_that_is_another_in_every_round_is_named(
    key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    lengths = iter([0.01, 0.02, 0.03])

    async def tool(ctx: Context) -> str:
        await asyncio.create_task(ctx.sleep(next(lengths), key=key))
        await ctx.elicit("ok?", bool)
        return "awake"

    assert await play(tool) == "awake"
    named = [record.getMessage() for record in caplog.records if "never ends" in record.getMessage()]
    assert len(named) == (key is None)
    assert all("sleep-0.01 before" in name and "sleep-0.02 instead" in name for name in named)


async def test_a_sleep_of_the_handler_itself_keeps_its_first_length() -> None:
    lengths = iter([0.01, 9.0])

    async def tool(ctx: Context) -> str:
        await ctx.sleep(next(lengths))
        await ctx.elicit("ok?", bool)
        return "awake"

    assert await soon(play(tool), 2.0) == "awake"


async def test_sleeps_that_are_the_same_in_every_round_are_not_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def tool(ctx: Context) -> str:
        for _ in range(2):
            await ctx.sleep(0.01)
            await ctx.elicit("ok?", bool)
            await ctx.sleep(0.02)
        return "awake"

    assert await play(tool) == "awake"
    assert "never ends" not in caplog.text


# What was written down between two legs


async def test_a_branch_that_begins_with_a_checkpoint_is_not_the_handler_itself() -> None:
    async def tool(ctx: Context) -> str:
        async def child() -> None:
            await ctx.checkpoint()
            await asyncio.sleep(0.03)
            await ctx.step(work, "child", 0)

        running = asyncio.create_task(child())
        await ctx.step(work, "one", 0.06)
        await ctx.elicit("one?", bool)
        await ctx.step(work, "two", 0.06)
        await ctx.elicit("two?", bool)
        await ctx.step(work, "three", 0)
        await running
        return "done"

    assert await play(tool) == "done"
    assert sorted(noted) == ["child", "one", "three", "two"]


async def test_branches_whose_answers_were_kept_are_not_the_handler_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def tool(ctx: Context) -> str:
        async def branch(number: int) -> None:
            await asyncio.sleep(0.03 * number)
            await ctx.elicit(f"{number}?", bool)
            await ctx.elicit(f"{number} sure?", bool)
            await ctx.step(work, f"{number} a", 0.12)
            await ctx.elicit(f"{number} more?", bool)
            await ctx.step(work, f"{number} b", 0)

        await asyncio.gather(ctx.step(work, "slow", 0.18), *map(branch, range(3)))
        return "done"

    assert await play(tool) == "done"
    assert sorted(noted) == ["0 a", "0 b", "1 a", "1 b", "2 a", "2 b", "slow"]
    assert "not asked again" not in caplog.text


async def test_nobody_waits_for_the_answer_to_a_question_that_was_reworded() -> None:
    def version(words: str) -> Handler:
        async def tool(ctx: Context) -> str:
            await ctx.step(work, "a", 0)
            await ctx.elicit(words, bool)
            await ctx.elicit("more?", bool)
            await ctx.step(work, "b", 0)
            await ctx.elicit("and more?", bool)
            return await ctx.step(work, "c", 0)

        return tool

    async with asyncio.timeout(30):
        first = await Client(serve(version("old?"))).ask("tool")
        after = Client(serve(version("new?")))
        asked = await after.retry(first, {key: accept(True) for key in first.requests})
        while asked.requests:
            asked = await after.retry(asked, {key: accept(True) for key in asked.requests})
    assert noted == ["a", "b", "c"]


async def test_a_replay_waits_once_for_all_that_nobody_comes_to() -> None:
    def version(words: str) -> Handler:
        async def tool(ctx: Context) -> str:
            await asyncio.gather(*(ctx.elicit(f"{words} {n}?", bool) for n in range(5)))
            await ctx.elicit("more?", bool)
            return "done"

        return tool

    before, after = (Client(serve(version(words))) for words in ("old", "new"))
    asked = await before.ask("tool")
    asked = await before.retry(asked, {key: accept(True) for key in asked.requests})
    async with asyncio.timeout(30):
        asked = await after.retry(asked, {key: accept(True) for key in asked.requests})
    assert len(asked.requests) == 5


async def test_a_question_that_was_cut_and_then_reworded_is_asked() -> None:
    def version(words: str, seconds: float) -> Handler:
        async def tool(ctx: Context) -> str:
            async def asks() -> str:
                try:
                    async with asyncio.timeout(seconds):
                        return str((await ctx.elicit(words, bool, key="k")).data)
                except TimeoutError:
                    return "not in time"

            seen, _ = await asyncio.gather(asks(), ctx.step(work, "a", 0.3))
            await ctx.elicit("more?", bool)
            return seen

        return tool

    before, after = Client(serve(version("old?", 0.1))), Client(serve(version("new?", 60)))
    asked = await before.ask("tool")
    asked = await after.retry(asked, {key: accept(True) for key in asked.requests})
    assert list(asked.requests) == ["k"]
    assert await after.reply(asked, {"k": accept(True)}) == "True"
    assert noted == ["a"]


async def test_an_answer_that_nobody_reads_any_more_holds_up_no_handler_without_branches() -> None:
    """Only a branch could still come to it. One that does not is not waited for."""
    server = new_server()
    deployed = ["before"]

    @server.tool
    async def tool(ctx: Context) -> str:
        first = await ctx.step(steps.quick, "a")
        if deployed == ["before"]:
            await ctx.elicit("old?", str, key="old")
        answer = await ctx.elicit("new?", str, key="new")
        return f"{first} {answer.data} {await ctx.step(steps.quick, 'b')}"

    client, time = Client(server), asyncio.get_running_loop().time
    asked = await client.ask("tool")
    deployed[:] = ["after"]
    asked = await client.retry(asked, {"old": accept("yes")})
    assert list(asked.requests) == ["new"]
    began = time()
    assert "yes" in text(await client.retry(asked, {"new": accept("yes")}))
    assert time() - began < 1.0
