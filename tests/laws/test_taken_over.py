"""Whoever takes a round over begins what was begun, and ends as the first would have."""

import asyncio
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from ekiden import Context, Retry
from ekiden.stores.memory import MemoryStore
from tests.laws import steps
from tests.laws.driving import SHORT_LEASE, Client, Faulty, Handler, accept, serve, settled, soon
from tests.laws.steps import noted

YES = {"k": accept(True)}


async def taken_over(handler: Handler, dying: Faulty, store: MemoryStore, after: float) -> str:
    """The second round of a call is begun by one who dies, and done by another: what that came to."""
    first, second = (Client(serve(handler, store=one, rounds=SHORT_LEASE)) for one in (dying, store))
    asked = await first.ask("tool")
    dead = asyncio.create_task(first.reply(asked, YES))
    try:
        await asyncio.sleep(after)
        dying.away = True
        return await second.reply(asked, YES)
    finally:
        dying.away = False  # Its ghost is told that it has lost the round.
        dying.failures.clear()
        await soon(dead)
        await settled(1)


@pytest.mark.parametrize("draw", ["uuid", "random", "now"])
async def test_a_step_that_is_begun_again_has_what_was_drawn_for_it(draw: str) -> None:
    keys: list[Any] = []

    async def charge(order: str, ctx: Context) -> str:
        keys.append((order, ctx.step_key))
        if len(keys) == 1:
            await asyncio.sleep(1)  # And meanwhile its process dies.
        return order

    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        order = str(getattr(ctx, draw)())
        return await ctx.step(partial(charge, ctx=ctx), order, key="charge" if draw == "now" else None)

    store = MemoryStore()
    assert await taken_over(tool, Faulty(store), store, 0.1) == keys[0][0]
    assert keys[0] == keys[1]


async def test_no_step_begins_while_what_was_drawn_for_it_is_still_being_kept() -> None:
    """The step of a sibling has it kept, together with what was drawn for that one."""
    keys: list[tuple[str, str]] = []

    async def charge(order: str, ctx: Context) -> str:
        keys.append((order, ctx.step_key))
        await asyncio.sleep(1)
        return order

    async def tool(ctx: Context) -> str:
        async def branch(name: str) -> None:
            await ctx.step(partial(charge, ctx=ctx), f"{name} {ctx.uuid(key=name)}", key=name)

        await ctx.elicit("pay?", bool, key="k")
        await asyncio.gather(branch("one"), branch("other"))
        return "paid"

    store = MemoryStore()
    dying = Faulty(store)
    dying.delays["commit"] = 0.2
    assert await taken_over(tool, dying, store, 0.1) == "paid"
    assert len(keys) == len(set(keys)) == 2


async def test_who_has_lost_a_round_does_not_try_its_step_once_more() -> None:
    tries: list[str] = []

    async def pay() -> str:
        tries.append("pay")
        if len(tries) == 1:
            raise ConnectionError("try again")
        return "paid"

    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        return await ctx.step(pay, key="pay", retry=Retry(attempts=3, seconds=3.0))

    store = MemoryStore()
    assert await taken_over(tool, Faulty(store), store, 0.1) == "paid"
    assert len(tries) == 2


async def test_what_was_left_behind_while_on_complete_ran_need_not_come_again() -> None:
    async def tool(ctx: Context) -> str:
        async def beside() -> None:
            await asyncio.sleep(0.03)
            await ctx.step(steps.quick, "beside")

        await ctx.elicit("go on?", bool, key="k")
        running.append(asyncio.create_task(beside()))
        ctx.on_complete(steps.lasting, "bill", 0.1)
        return "done"

    running: list[asyncio.Task[None]] = []
    store = MemoryStore()
    dying = Faulty(store)
    dying.failures = {"finish": 1000, "renew": 1000}
    assert await taken_over(tool, dying, store, 0.3) == "done"
    assert noted == ["begin bill", "begin beside", "end beside", "end bill"]


async def test_an_on_complete_step_begins_again_although_what_was_left_behind_is_late() -> None:
    """Its branch reads for longer than a new step waits for others."""

    async def tool(ctx: Context) -> str:
        async def beside() -> None:
            await asyncio.sleep(0.05 if not running else 1.3)
            await ctx.step(steps.quick, "beside")

        await ctx.elicit("go on?", bool, key="k")
        left = asyncio.create_task(beside())
        await asyncio.sleep(0)
        running.append(left)
        ctx.on_complete(steps.lasting, "bill", 0.4 if len(running) == 1 else 0.0)
        return "done"

    running: list[asyncio.Task[None]] = []
    store = MemoryStore()
    assert await taken_over(tool, Faulty(store), store, 0.2) == "done"


async def taken_over_by_a_repeat(handler: Handler, begun: list[Any], **given: int) -> list[str]:
    """The second round of a call is sent to two, and who has it first dies in a step that was begun.

    The other one looked for it before it was claimed, and so has run the handler up to its first step. What
    that one's reply is, and what a repeat of the round gets then.
    """
    store = MemoryStore()
    dying = Faulty(store)
    first, second = (Client(serve(handler, store=one, rounds=SHORT_LEASE)) for one in (dying, store))
    asked = await first.ask("tool", given)
    late = asyncio.create_task(second.reply(asked, YES, given))
    await asyncio.sleep(0)
    dead = asyncio.create_task(first.reply(asked, YES, given))
    try:
        async with asyncio.timeout(1):
            while not begun:
                await asyncio.sleep(0.01)
        dying.away = True
        return [await late, await second.reply(asked, YES, given)]
    finally:
        dying.away = False
        await soon(dead)
        await settled(1)


@pytest.mark.parametrize("draw", ["uuid", "random"])
async def test_a_repeat_that_has_drawn_before_it_takes_over_goes_on_with_what_was_drawn_first(
    draw: str,
) -> None:
    keys: list[Any] = []
    pauses = [0.1, 0.0]

    async def charge(order: str, ctx: Context) -> str:
        keys.append((order, ctx.step_key))
        if len(keys) == 1:
            await asyncio.sleep(2)  # And meanwhile its process dies.
        return order

    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        order = str(getattr(ctx, draw)())
        await asyncio.sleep(pauses.pop(0) if pauses else 0)
        return await ctx.step(partial(charge, ctx=ctx), order)

    assert await taken_over_by_a_repeat(tool, keys) == [keys[0][0]] * 2
    assert keys[0] == keys[1]


moods: list[str] = []


def moody(value: int) -> int:
    """A validator that fails when it is told to, once."""
    if moods:
        raise ValueError(moods.pop())
    return value


async def test_arguments_that_fit_no_more_when_a_round_is_run_again_do_not_leave_it_claimed() -> None:
    begun: list[str] = []
    pauses = [0.1, 0.0]

    async def work() -> str:
        begun.append("work")
        if len(begun) == 1:
            moods.append("not now")  # When the arguments are read for the run over what was done here.
            await asyncio.sleep(2)  # And meanwhile its process dies.
        return "worked"

    async def tool(number: Annotated[int, AfterValidator(moody)], ctx: Context) -> str:
        await ctx.elicit("go on?", bool, key="k")
        await asyncio.sleep(pauses.pop(0) if pauses else 0)
        await ctx.step(steps.quick, "first")
        return await ctx.step(work, key="work")

    refused, again = await taken_over_by_a_repeat(tool, begun, number=1)
    assert not moods
    assert refused.startswith(("failed", "error"))
    assert again == "worked"
    assert await settled(1) == []
