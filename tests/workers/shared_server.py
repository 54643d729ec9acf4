"""What the processes of the tests of shared sessions serve.

python shared_server.py PORT

`STORE` is where the sessions lie. The header `x-user` says whose request it is.
"""

import asyncio
import logging
import os
import sys

from ekiden import Context, Request, Server


def user(request: Request) -> str:
    """Whose request it is."""
    return "" if request.headers is None else request.headers.get(b"x-user", b"").decode()


server = Server("shared", store=os.environ["STORE"], principal=user, seal_store="EKIDEN_KEYS" in os.environ)


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
async def count(ctx: Context) -> str:
    """Count to three, one for each answer of the client."""
    for number in range(1, 4):
        await ctx.progress(number, 3)
        await ctx.elicit(f"After {number}?", str)
    return f"counted by {os.getpid()}"


@server.tool
async def long(ctx: Context) -> str:
    """Go on until cancelled."""
    await ctx.progress(1)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        server.resource_updated("note://cancelled")
        raise
    return "not cancelled"


@server.tool
async def change(uri: str) -> str:
    """Say that a resource has changed."""
    server.resource_updated(uri)
    return str(os.getpid())


@server.resource("note://{name}")
async def note(name: str) -> str:
    """A note."""
    return name


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    server.run("http", port=int(sys.argv[1]), log_level="warning", grace=2)
