"""A server for the tests of prompts, resources and tasks: all of them ask."""

import asyncio
import os
import time
from pathlib import Path
from typing import Literal

from ekiden import Context, Server, TaskLimits

server = Server(
    "errands",
    keys=[b"k" * 32],
    store=os.environ.get("EKIDEN_STORE", "memory:"),
    tasks=TaskLimits(lease_seconds=60.0, poll_seconds=0.05, message_seconds=0.0),
)


@server.tool(task="required")
async def walk(ctx: Context) -> str:
    """Ask twice on the way."""
    await ctx.progress(1, 3, "left the house")
    way = await ctx.elicit("Left or right?", Literal["left", "right"], key="way")
    await ctx.progress(2, 3, f"went {way.data}")
    bread = await ctx.elicit("Buy bread?", bool, key="bread")
    return f"went {way.data}, {'with' if bread.data else 'without'} bread"


@server.tool(task="required")
async def two_at_once(ctx: Context) -> str:
    """Ask two things at once."""
    one, other = await asyncio.gather(
        ctx.elicit("First of all?", str, key="first"), ctx.elicit("And then?", str, key="second")
    )
    return f"{one.data} {other.data}"


@server.tool(task="required")
async def crash(_ctx: Context) -> str:
    """Fail."""
    raise RuntimeError("out of bread")


@server.tool(task="required")
async def dawdle(folder: str, ctx: Context) -> str:
    """Take until somebody says that it is enough."""
    await ctx.log("info", "looks at the shop window")
    await ctx.step(wait_for, folder)
    return "home at last"


async def wait_for(folder: str) -> None:
    Path(folder, "began").touch()
    async with asyncio.timeout(60):
        while not Path(folder, "enough").exists():
            await asyncio.sleep(0.02)


@server.tool(task="required")
async def plod(folder: str, ctx: Context) -> str:
    """The same, in a thread, which nobody can stop."""
    await ctx.step(wait_in_a_thread_for, folder)
    return "home at last"


def wait_in_a_thread_for(folder: str) -> None:
    Path(folder, "began").touch()
    for _ in range(3000):
        if Path(folder, "enough").exists():
            return
        time.sleep(0.02)
    raise TimeoutError


@server.prompt
async def letter(to: str, ctx: Context) -> list[str]:
    """Write a letter, in the tone that the user wants."""
    tone = await ctx.elicit(f"How do you write to {to}?", Literal["kindly", "shortly"], key="tone")
    return [f"Write to {to}.", f"Write {tone.data}."]


@server.resource("errands://list", mime_type="text/plain")
async def shopping(ctx: Context) -> str:
    """What to buy."""
    answer = await ctx.elicit("For how many?", int, key="people")
    return f"bread for {answer.data}"


@server.resource("errands://maps/town.bin", mime_type="application/octet-stream")
async def town() -> bytes:
    """The way."""
    return b"\x00\x01\x02"


if __name__ == "__main__":
    server.run("stdio")
