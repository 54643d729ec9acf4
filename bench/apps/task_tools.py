"""The tools of ekiden's server that always run as tasks."""

import time
from typing import Final

from ekiden import Context, Server

_BEGAN: Final[dict[int, float]] = {}
"""When each sleeper of this process first ran."""


async def empty() -> str:
    """Do nothing, and say when."""
    return str(time.monotonic_ns())


async def waits(ctx: Context) -> str:
    """Ask, and say when it went on."""
    await ctx.elicit("Go on?", bool)
    return str(time.monotonic_ns())


async def give(number: int) -> int:
    return number


async def steps(ctx: Context) -> str:
    """Take one step."""
    return str(await ctx.step(give, 1))


async def stairs(count: int, ctx: Context) -> str:
    """Take so many steps, one after the other."""
    for number in range(count):
        await ctx.step(give, number)
    return str(count)


async def naps(ctx: Context) -> str:
    """Sleep for a moment, as a row in the store."""
    await ctx.sleep(0.05)
    return "awake"


async def sleeps(number: int, until: float, ctx: Context) -> str:
    """Sleep until a time of the clock; say when it first ran, and when it went on."""
    began = _BEGAN.setdefault(number, time.time())
    await ctx.sleep(until - began, key="until")
    return f"{began} {time.time()}"


def add_task_tools(server: Server) -> None:
    for tool in (empty, waits, steps, stairs, naps, sleeps):
        server.add_tool(tool, task="required")
