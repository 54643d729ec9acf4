"""A server whose one tool asks twice, with a step between; for `ekiden run --workers`."""

import os

from ekiden import Context, Server

server = Server("asking")


@server.tool
async def twice(call: str, ctx: Context) -> str:
    """Ask twice; the answers and the processes that served."""
    first = await ctx.elicit(f"question 1 of {call}?", str)
    pid = await ctx.step(os.getpid)
    second = await ctx.elicit(f"question 2 of {call}?", str)
    return f"{first.data} {second.data} {pid}"
