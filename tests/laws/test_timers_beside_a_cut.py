"""A replay waits for scopes to cut what they cut at first, and the timers of other branches run meanwhile."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from ekiden import Context
from ekiden.rounds.turns import Turns
from ekiden.stores.memory import MemoryStore
from ekiden.testing import CallFailed, ScriptedClient
from tests.laws.driving import Handler, accept, first_then, serve, soon, yes
from tests.tasks.driving import TaskClient

noted: list[str] = []


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    noted.clear()


async def work(name: str, seconds: float) -> str:
    noted.append(name)
    await asyncio.sleep(seconds)
    return name


async def play(handler: Handler) -> str:
    result = await soon(ScriptedClient(serve(handler), yes).call_tool("tool"), 15.0)
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


async def hang(ctx: Context, seconds: float) -> str:
    """A step that is cut after so many seconds, in every run."""
    try:
        async with asyncio.timeout(seconds):
            return await ctx.step(work, "hangs", 9)
    except TimeoutError:
        return "timed out"


async def read(ctx: Context, seconds: float) -> str:
    """A branch that does some plain I/O before its step."""
    await asyncio.sleep(seconds)
    return await ctx.step(work, "read", 0)


async def test_a_second_effect_under_one_deadline_is_cut_again() -> None:
    async def tool(ctx: Context) -> str:
        async def chain() -> str:
            await ctx.step(work, "first", 0.25)
            try:
                async with asyncio.timeout(0.2):
                    await ctx.step(work, "second", 0.1)
                    return await ctx.step(work, "third", 9)
            except TimeoutError:
                return "third cut"

        seen = await asyncio.gather(hang(ctx, 0.3), chain())
        await ctx.elicit("ok?", bool)
        return " ".join(seen)

    assert await play(tool) == "timed out third cut"
    assert noted == ["hangs", "first", "second", "third"]


async def test_clean_up_in_a_scope_that_did_not_expire_is_done() -> None:
    async def tool(ctx: Context) -> str:
        async def chain() -> str:
            await ctx.step(work, "first", 0.25)
            try:
                async with asyncio.timeout(0.2):
                    await ctx.step(work, "lock", 0.1)
                    try:
                        await ctx.elicit("ok?", bool)
                    finally:
                        await ctx.step(work, "unlock", 0)
            except TimeoutError:
                return "cut"
            return "done"

        return " ".join(await asyncio.gather(hang(ctx, 0.3), chain()))

    assert await play(tool) == "timed out done"
    assert noted == ["hangs", "first", "lock", "unlock"]


@pytest.mark.parametrize("how", ["gather", "group", "task"])
async def test_a_scope_around_several_effects_does_not_expire_sooner(how: str) -> None:
    async def tool(ctx: Context) -> str:
        async def pay() -> None:
            if how == "gather":
                await asyncio.gather(ctx.step(work, "a", 0.1), ctx.step(work, "b", 0.1))
            elif how == "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(ctx.step(work, "a", 0.1))
                    group.create_task(ctx.step(work, "b", 0.1))
            else:
                await asyncio.create_task(ctx.step(work, "a", 0.1))

        async def both() -> str:
            await ctx.step(work, "first", 0.25)
            try:
                async with asyncio.timeout(0.15):
                    await pay()
            except TimeoutError:
                return await ctx.step(work, "otherwise", 0)
            return "paid"

        seen = (await asyncio.gather(hang(ctx, 0.3), both()))[1]
        await ctx.elicit("ok?", bool)
        return seen

    assert await play(tool) == "paid"
    assert noted == ["hangs", "first", "a"] + (["b"] if how != "task" else [])


async def test_a_cut_waits_for_a_branch_that_is_late() -> None:
    reading: Iterator[float] = iter([0.05, 0.5])

    async def tool(ctx: Context) -> str:
        seen: list[str] = []
        seconds = next(reading)

        async def reads() -> None:
            await asyncio.sleep(seconds)
            seen.append(await ctx.step(work, "a", 0))

        async def hangs() -> None:
            if await hang(ctx, 0.3) == "timed out" and not seen:
                seen.append(await ctx.step(work, "b instead", 0))

        await asyncio.gather(reads(), hangs())
        await ctx.elicit("ok?", bool)
        return " ".join(seen)

    assert await play(tool) == "a"
    assert noted == ["hangs", "a"]


@pytest.mark.parametrize("goes_on", [True, False])
async def test_an_effect_that_a_sibling_cuts_has_begun_before_the_sibling_fails(goes_on: bool) -> None:
    async def tool(ctx: Context) -> str:
        async def reads() -> None:
            await asyncio.sleep(0.05)
            await ctx.step(work, "long", 9)

        async def fails() -> None:
            await ctx.step(work, "short", 0.15)
            raise ValueError("no")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(reads())
                group.create_task(fails())
        except* ValueError:
            pass
        await ctx.elicit("ok?", bool)
        return await ctx.step(work, "after", 0) if goes_on else "after"

    assert await play(tool) == "after"
    assert sorted(noted) == [*(["after"] if goes_on else []), "long", "short"]


async def test_a_question_whose_answer_came_is_not_cut() -> None:
    reading: Iterator[float] = iter([0.02, 0.4])

    async def tool(ctx: Context) -> str:
        reads = read(ctx, next(reading))

        async def asks() -> str:
            try:
                async with asyncio.timeout(0.2):
                    return str((await ctx.elicit("ok?", bool)).data)
            except TimeoutError:
                return "not in time"

        return (await asyncio.gather(reads, asks()))[1]

    assert await play(tool) == "True"


async def test_no_step_is_run_on_a_guess_where_a_scope_expired_that_did_not_expire_before() -> None:
    """Another branch takes its time, so a deadline over several effects is over before they are told."""
    reading: Iterator[float] = iter([0.02, 0.4])

    async def tool(ctx: Context) -> str:
        reads = read(ctx, next(reading))

        async def pays() -> str:
            try:
                async with asyncio.timeout(0.2):
                    await asyncio.gather(ctx.step(work, "a", 0.1), ctx.step(work, "b", 0.1))
            except TimeoutError:
                return await ctx.step(work, "otherwise", 0)
            return "paid"

        seen = (await asyncio.gather(reads, pays()))[1]
        await ctx.elicit("ok?", bool)
        return seen

    with pytest.raises(CallFailed, match="does not replay"):
        await play(tool)
    assert noted == ["a", "b", "read"]


async def test_a_cancellation_in_the_very_pass_in_which_an_effect_is_told_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tell, branches = Turns._tell, list[asyncio.Task[Any]]()

    def tell_and_cancel(self: Turns, name: str, value: Any) -> bool:
        told = tell(self, name, value)
        if "first" in name and len(branches) == 2:  # The replay.
            branches[-1].cancel()
        return told

    monkeypatch.setattr(Turns, "_tell", tell_and_cancel)

    async def tool(ctx: Context) -> str:
        async def chain() -> str:
            try:
                await ctx.step(work, "first", 0, key="first")
                await ctx.elicit("ok?", bool)
                return await ctx.step(work, "second", 0)
            except asyncio.CancelledError:
                return "cancelled"

        branches.append(asyncio.create_task(chain()))
        return await branches[-1]

    assert await play(tool) == "cancelled"
    assert noted == ["first"]


async def test_a_task_that_is_cancelled_while_it_replays_cleans_up_once() -> None:
    async def tool(ctx: Context) -> str:
        beside = asyncio.create_task(hang(ctx, 0.5))
        try:
            await ctx.step(work, "pay", 0.6)
            await ctx.elicit("ok?", bool, key="k")
            await ctx.step(work, "ship", 9)
        except asyncio.CancelledError:
            await ctx.step(work, "refund", 0)
            raise
        return await beside

    server = serve(tool, store=MemoryStore(), task="required")
    async with server.running():
        client = TaskClient(server)
        task = await client.start()
        (key,) = await client.asked(task)
        await client.update(task, {key: accept(True)})
        await asyncio.sleep(0.2)  # The leg replays for half a second.
        await client.cancel(task)
        await soon(client.until(task, "cancelled"), 5)
    assert noted == ["pay", "hangs", "refund"] or noted == ["hangs", "pay", "refund"]


async def test_a_handler_that_cuts_something_else_instead_is_not_waited_for_without_end() -> None:
    """What it cut at first waits for its cut, and goes on waiting when something new is cut beside it."""

    async def before(ctx: Context) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await ctx.sleep(3600)
        return str((await ctx.elicit("ok?", bool, key="k")).data)

    async def after(ctx: Context) -> str:
        async def beside() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await ctx.sleep(3600, key="new")

        async with asyncio.TaskGroup() as group:
            group.create_task(beside())
            await ctx.sleep(3600)
        return str((await ctx.elicit("ok?", bool, key="k")).data)

    assert await first_then(before, after) == "error -32603"


@pytest.mark.parametrize("left", ["the cut", "the step before it", "both"])
async def test_a_branch_that_was_cut_and_is_gone_is_not_waited_for_without_end(left: str) -> None:
    """A new version of the server does not have it any more, and its question is asked by nobody."""

    def version(*parts: str) -> Handler:
        async def tool(ctx: Context) -> str:
            async def asks() -> None:
                if "the step before it" in parts:
                    await ctx.step(work, "first", 0)
                if "the cut" in parts:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await ctx.elicit("now?", bool)

            beside = (ctx.step(work, name, seconds) for name, seconds in (("soon", 0.05), ("late", 0.3)))
            await asyncio.gather(asks(), *beside)
            return str((await ctx.elicit("ok?", bool, key="k")).data)

        return tool

    both = ("the step before it", "the cut")
    after = () if left == "both" else tuple(part for part in both if part != left)
    # A step that vanished is a change that a replay cannot go on with. A question is not.
    expected = "True" if left == "the cut" else "error -32603"
    assert await soon(first_then(version(*both), version(*after))) == expected
    assert sorted(noted) == ["first", "late", "soon"]


async def test_a_branch_that_comes_later_than_anybody_waits_for_is_told_all_the_same() -> None:
    """Its plain I/O takes longer in a replay. The others have gone on, and have nothing new to do."""
    runs = 0

    async def tool(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        slow = 5.0 if runs == 2 else 0.0

        async def first() -> str:
            await asyncio.sleep(slow)
            return await ctx.step(work, "first", 0)

        async def second() -> str:
            await asyncio.sleep(0.01)
            return await ctx.step(work, "second", 0)

        done = await asyncio.gather(first(), second())
        return f"{done} {(await ctx.elicit('ok?', bool, key='k')).data}"

    assert await first_then(tool, tool) == "['first', 'second'] True"
    assert (runs, noted) == (2, ["first", "second"])
