"""A tool whose step takes some seconds, and says when it begins and when it has ended."""

import asyncio
import sys

from ekiden import Context, Server, TaskLimits

server = Server("slow", keys=[b"k" * 32], tasks=TaskLimits(lease_seconds=60.0))


async def take_long(seconds: float) -> str:
    print("begins", file=sys.stderr, flush=True)
    await asyncio.sleep(seconds)
    print("has ended", file=sys.stderr, flush=True)
    return "done"


@server.tool(task="required")
async def slow(seconds: float, ctx: Context) -> str:
    """Take some seconds."""
    return await ctx.step(take_long, seconds)
