"""What a leg leaves behind, and what its handler sees of the world around it."""

import asyncio
import gc
from collections import Counter
from contextvars import ContextVar
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden import Context, Server
from ekiden.testing import ScriptedClient

KEYS = [b"a key of thirty-two bytes or more."]

spoken: ContextVar[str] = ContextVar("spoken", default="nothing")


class Confirm(BaseModel):
    ok: bool


async def _find() -> str:
    return "it"


def _server() -> Server:
    server = Server("legs", version="1", keys=KEYS)

    @server.tool
    async def twice(ctx: Context) -> str:
        """Ask twice."""
        for question in ("Really?", "Quite sure?"):
            answer = await ctx.elicit(question, Confirm)
            if answer.data is None or not answer.data.ok:
                return "no"
        return "yes"

    @server.tool
    async def after_a_step(ctx: Context) -> str:
        """Do a step, then ask."""
        found = await ctx.step(_find)
        answer = await ctx.elicit(f"Take {found}?", Confirm)
        return answer.action

    @server.tool
    async def speak(ctx: Context) -> str:
        """Set a context variable, wait, and set it back."""
        token = spoken.set("something")
        await asyncio.sleep(0)
        heard = spoken.get()
        spoken.reset(token)
        return f"{heard}, then {spoken.get()}"

    return server


def _yes(*_: Any) -> dict[str, Any]:
    return {"ok": True}


@pytest.mark.parametrize("tool", ["twice", "after_a_step"])
async def test_rounds_leave_nothing_to_the_garbage_collector(tool: str) -> None:
    client = ScriptedClient(_server(), _yes)
    await client.call_tool(tool)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(20):
            await client.call_tool(tool)
        await asyncio.sleep(0)
        gc.collect()
        ours = Counter(type(left).__qualname__ for left in gc.garbage if _is_of_a_round(left))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not ours


def _is_of_a_round(left: object) -> bool:
    return type(left).__module__.startswith(("ekiden.rounds", "ekiden.server"))


async def test_a_handler_is_in_one_context_from_its_beginning_to_its_end() -> None:
    result = await ScriptedClient(_server()).call_tool("speak")
    assert result["content"][0]["text"] == "something, then nothing"
