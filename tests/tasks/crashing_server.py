"""A server that dies where it is told to.

    python crashing_server.py PORT

From the environment: `STORE`, `NOTES` (a file with a line for every step that any process ran), `CRASH` (a
crash point, if any), `EKIDEN_KEYS`.
"""

import logging
import os
import sys
from typing import Any

from ekiden import CancelledTask, Context, Server, TaskLimits
from ekiden.stores import open_store
from ekiden.testing import crash_at

store: Any = open_store(os.environ["STORE"])
if crash := os.environ.get("CRASH"):
    crash_at(store.tasks, crash)
server = Server("crashing", store=store, tasks=TaskLimits(lease_seconds=0.5, sweep_seconds=0.1))


def note(*words: str) -> None:
    """Append a line as one write, so that those of several processes never mix."""
    descriptor = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (" ".join(words) + "\n").encode())
    finally:
        os.close(descriptor)


@server.tool(task="deferred")
async def refund(order: str, ctx: Context) -> str:
    """One question by rounds, then a task with a question, a sleep and four steps in it."""

    def work(what: str) -> str:
        note(what, ctx.step_key)
        return what.upper()

    first = await ctx.elicit("round?", str, key="round")
    await ctx.background()
    done = [await ctx.step(work, what) for what in ("look", "book")]
    await ctx.sleep(0.3)  # Longer than it takes to get here: a sleep that is over at once does not suspend.
    second = await ctx.elicit("task?", str, key="task")
    done += [await ctx.step(work, what) for what in ("pay", "mail")]
    return " ".join([order, str(first.data), str(second.data), *done])


def tidy(cancelled: CancelledTask) -> None:
    """Note what was done before."""
    note("tidied", *cancelled.steps)


@server.tool(task="required", on_cancel=tidy)
async def waits(ctx: Context) -> str:
    """A step, and then an answer that never comes."""

    def look() -> None:
        note("looked", ctx.step_key)

    await ctx.step(look)
    await ctx.elicit("task?", str, key="task")
    return "never"


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    server.run("http", port=int(sys.argv[1]), log_level="warning", grace=2)
