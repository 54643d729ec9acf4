"""Uncatchable: a handler that goes on although its leg is over does nothing more, and holds nobody up."""

import asyncio
import contextlib
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from ekiden import Context
from ekiden.stores.memory import MemoryStore
from tests.laws import steps
from tests.laws.driving import Client, TaskClient, accept, serve
from tests.laws.steps import noted

EFFECTS: dict[str, Callable[[Context], Any]] = {
    "elicit": lambda ctx: ctx.elicit("more?", bool, key="more"),
    "sample": lambda ctx: ctx.sample("poem", max_tokens=9),
    "step": lambda ctx: ctx.step(steps.visa),
    "sleep": lambda ctx: ctx.sleep(3600),
    "checkpoint": lambda ctx: ctx.checkpoint(),
    "background": lambda ctx: ctx.background(),
    "require_scope": lambda ctx: ctx.require_scope("pay"),
    "now": lambda ctx: ctx.now(),
    "uuid": lambda ctx: ctx.uuid(),
}


async def go_on(ctx: Context, seen: list[str]) -> None:
    """Use every effect, whatever the one before came to."""
    for name, effect in EFFECTS.items():
        try:
            used = effect(ctx)
            if inspect.isawaitable(used):
                await used
        except asyncio.CancelledError:
            seen.append(name)
    ctx.on_complete(steps.backup)


@pytest.mark.parametrize("beside", [False, True])
async def test_no_effect_does_anything_when_the_leg_is_over(beside: bool) -> None:
    """Whether the handler has begun a task of its own or not."""
    seen: list[str] = []

    async def tool(ctx: Context) -> str:
        if beside:
            await asyncio.create_task(asyncio.sleep(0))
        try:
            answer = await ctx.elicit("sure?", bool, key="k")
        except asyncio.CancelledError:
            await go_on(ctx, seen)
            return "dropped"
        return f"{answer.data}"

    client = Client(serve(tool, store=MemoryStore(), task="deferred"))
    first = await client.ask("tool")
    assert set(first.requests) == {"k"}
    assert seen == list(EFFECTS)
    assert await client.reply(first, {"k": accept(True)}) == "True"
    assert noted == []


async def test_no_effect_does_anything_when_the_task_is_cancelled() -> None:
    seen: list[str] = []

    async def tool(ctx: Context) -> str:
        try:
            await ctx.step(steps.held, "on the way")
        except asyncio.CancelledError:
            await go_on(ctx, seen)
        return "dropped"

    server = serve(tool, store=MemoryStore(), task="required")
    async with server.running():
        client = TaskClient(server)
        task_id = await client.start()
        await steps.until_begun("on the way")
        await client.cancel(task_id)
        steps.gate("on the way").set()
        await client.until(task_id, "cancelled")
    assert seen == list(EFFECTS)
    assert not {"begin visa", "begin backup"} & set(noted)


async def test_a_handler_that_asks_again_and_again_is_stopped_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It swallows every cancellation, and would keep the event loop busy for ever."""
    asked: list[int] = []
    is_over = asyncio.Event()

    async def tool(ctx: Context) -> str:
        for number in itertools.count():
            asked.append(number)
            with contextlib.suppress(asyncio.CancelledError):
                answer = await ctx.elicit("sure?", bool, key=f"{number}")
                return f"{answer.data}"
            if is_over.is_set():
                break
        return "never"

    client = Client(serve(tool))
    first = await client.ask("tool")
    assert set(first.requests) == {"0"}
    assert 50 < len(asked) < 500
    assert "it is left behind" in caplog.text
    assert await client.reply(first, {"0": accept(True)}) == "True"
    is_over.set()  # Else no event loop could end it.
