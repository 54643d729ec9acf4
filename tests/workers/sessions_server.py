"""What the workers of the session tests serve."""

import asyncio
import os

from ekiden import Context, Server

server = Server("sessions")


@server.tool
async def twice(word: str, ctx: Context) -> str:
    """Have the client repeat a word, two times, and tell who asked."""
    one = await ctx.elicit(f"Repeat {word}", str)
    other = await ctx.elicit(f"Repeat {word}!", str)
    return f"{one.data} {other.data} by {os.getpid()}"


@server.tool
async def who() -> str:
    """Tell which process answers."""
    return str(os.getpid())


@server.tool
async def counting(ctx: Context) -> str:
    """Tell how far it is."""
    for number in range(1, 4):
        await ctx.progress(number, 3)
        await asyncio.sleep(0.01)
    return "counted"
