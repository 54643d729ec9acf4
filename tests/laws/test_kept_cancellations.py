"""A replay keeps a cancellation that comes too soon: it is given later as it came, or not at all."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anyio
import pytest

from ekiden import Context
from ekiden.testing import ScriptedClient
from tests.laws.driving import Handler, serve, soon, yes

noted: list[str] = []


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    noted.clear()


async def work(name: str, seconds: float = 0.0) -> str:
    noted.append(name)
    await asyncio.sleep(seconds)
    return name


async def play(handler: Handler) -> str:
    result = await soon(ScriptedClient(serve(handler), yes).call_tool("tool"), 5.0)
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


def beside_a_late_reader(branch: Callable[[Context], Coroutine[Any, Any, str]]) -> Handler:
    """A handler whose other branch reads for longer in every later round, so that timers run ahead."""
    reading: Iterator[float] = iter([0.02, 0.5, 0.5, 0.5])

    async def tool(ctx: Context) -> str:
        async def reads(seconds: float) -> None:
            await asyncio.sleep(seconds)
            await ctx.step(work, "read")

        seen = await asyncio.gather(branch(ctx), reads(next(reading)), return_exceptions=True)
        await ctx.elicit("done?", bool)
        return str(seen[0])

    return tool


async def test_a_scope_of_anyio_absorbs_a_cancellation_that_was_kept() -> None:
    async def branch(ctx: Context) -> str:
        with anyio.move_on_after(0.3) as scope:
            await ctx.step(work, "a", 0.1)
            await ctx.step(work, "b", 9)
        return f"caught: {scope.cancelled_caught}"

    assert await play(beside_a_late_reader(branch)) == "caught: True"
    assert noted == ["a", "read", "b"]


async def test_scopes_of_anyio_absorb_cancellations_that_waited_for_their_turn() -> None:
    async def tool(ctx: Context) -> str:
        seen: list[str] = []

        async def branch(i: int) -> None:
            with anyio.move_on_after(0.8) as outer:
                await ctx.step(work, f"a{i}", 0.03 * i)
                with anyio.move_on_after(0.3) as inner:
                    await ctx.step(work, f"b{i}", 0.01 * i)
                    await ctx.step(work, f"c{i}", 0.01 if i == 1 else 9)
                with anyio.CancelScope(shield=True):
                    await ctx.step(work, f"d{i}", 0.01)
                seen.append(f"{i} {inner.cancelled_caught}")
                await ctx.step(work, f"e{i}", 9)
            seen.append(f"{i} {outer.cancelled_caught}")

        async with anyio.create_task_group() as group:
            for i in (1, 2, 3):
                group.start_soon(branch, i)
        await ctx.elicit("ok?", bool)
        return ", ".join(sorted(seen))

    assert await play(tool) == "1 False, 1 True, 2 True, 2 True, 3 True, 3 True"
    assert len(noted) == 15


async def test_a_cancellation_whose_scope_has_ended_cuts_no_clean_up_of_another() -> None:
    async def branch(ctx: Context) -> str:
        async with asyncio.timeout(0.2):
            await ctx.step(work, "a", 0.1)
        await ctx.elicit("ok?", bool)
        try:
            async with asyncio.timeout(0.1):
                try:
                    await asyncio.sleep(9)
                finally:
                    await ctx.step(work, "release")
        except TimeoutError:
            return "released"
        return "in time"

    assert await play(beside_a_late_reader(branch)) == "released"
    assert noted == ["a", "read", "release"]


async def test_a_cancellation_whose_scope_has_ended_is_forgotten_before_another_fires() -> None:
    """Although the task does nothing between the two scopes."""

    async def branch(ctx: Context) -> str:
        async with asyncio.timeout(0.2):
            await ctx.step(work, "a", 0.1)
            await ctx.elicit("ok?", bool)
        try:
            async with asyncio.timeout(0.1):
                try:
                    await asyncio.sleep(9)
                finally:
                    await ctx.step(work, "release")
        except TimeoutError:
            return "released"
        return "in time"

    assert await play(beside_a_late_reader(branch)) == "released"
    assert noted == ["a", "read", "release"]


async def test_a_step_that_waits_for_a_draw_of_another_branch_begins() -> None:
    """A cancellation was kept, so everything of old is to come up before it: the draw is the last."""

    async def branch(ctx: Context) -> str:
        async def draws() -> None:
            await asyncio.sleep(0.05 if "read" not in noted else 0.7)
            ctx.random()

        drawing = asyncio.create_task(draws())
        async with asyncio.timeout(0.2):
            await ctx.step(work, "a", 0.1)
        await ctx.elicit("ok?", bool)
        seen = await ctx.step(work, "b")
        await drawing
        return seen

    assert await play(beside_a_late_reader(branch)) == "b"
    assert noted == ["a", "read", "b"]
