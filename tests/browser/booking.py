"""A server for the tests of pages: a call of three rounds whose worker dies once, and a task that asks."""

import os
import signal
import time
from pathlib import Path

from ekiden import Context, Retry, Server

server = Server("booking", record=True)

MARKS = Path(os.environ["BOOKING_MARKS"])


def reserve(city: str) -> str:
    return f"a room in {city}"


def pay(amount: int) -> str:
    """The first worker that comes here dies in the middle."""
    if not (MARKS / "died").exists():
        (MARKS / "died").touch()
        time.sleep(0.5)  # What has happened so far is written by then.
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {amount}"


def fetch() -> str:
    """Fails the first time."""
    if not (MARKS / "failed").exists():
        (MARKS / "failed").touch()
        raise OSError("the line is busy")
    return "42 pages"


@server.tool
async def book(city: str, ctx: Context) -> str:
    room = await ctx.step(reserve, city)
    await ctx.info(f"reserved {room}")
    nights = await ctx.elicit("How many nights?", int)
    await ctx.step(pay, 80)
    await ctx.elicit("Send the receipt?", bool)
    return f"{room} for {nights.action}"


@server.tool(task="required")
async def report(title: str, ctx: Context) -> str:
    pages = await ctx.step(fetch, retry=Retry(seconds=0.05))
    answer = await ctx.elicit(f"Publish {title}?", bool)
    return f"{pages} {answer.action}"
