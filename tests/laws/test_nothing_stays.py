"""Nothing of a leg that has ended stays behind: neither its timers nor its branches."""

import asyncio
import gc

from ekiden import Context
from ekiden.rounds.leg import Leg
from tests.laws import steps
from tests.laws.driving import Client, accept, play, serve, settled

YES = {"k": accept(True)}


def legs() -> int:
    gc.collect()
    return sum(isinstance(each, Leg) for each in gc.get_objects())


async def test_a_sleep_that_is_cut_does_not_keep_its_leg() -> None:
    async def tool(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.02):
                await ctx.sleep(3600)
        except TimeoutError:
            await ctx.elicit("ok?", bool)
        return "done"

    before = legs()
    assert await play(tool) == "done"
    assert legs() == before


async def test_a_sleep_beside_a_question_does_not_keep_its_leg() -> None:
    async def tool(ctx: Context) -> str:
        both = [asyncio.create_task(each) for each in (ctx.elicit("ok?", bool), ctx.sleep(3600))]
        _, pending = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        return "done"

    before = legs()
    assert await play(tool) == "done"
    assert legs() == before


async def test_a_branch_that_nobody_waits_for_ends_when_the_client_has_left() -> None:
    async def tool(ctx: Context) -> str:
        async def beside() -> None:
            await ctx.step(steps.quick, "beside")
            await asyncio.sleep(60)

        await ctx.elicit("go on?", bool, key="k")
        branch = asyncio.create_task(beside())
        await asyncio.sleep(60)
        return str(branch)

    client = Client(serve(tool))
    asked = await client.ask("tool")
    leaving = asyncio.create_task(client.retry(asked, YES))
    await steps.until_begun("beside")
    await asyncio.sleep(0.02)
    leaving.cancel()
    await asyncio.wait([leaving])
    assert not await settled(1)
