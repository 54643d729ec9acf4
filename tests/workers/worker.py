"""One worker: a server whose calls any other worker can go on with.

    python worker.py PORT

What it has in common with the others comes from the environment: `EKIDEN_KEYS`, `NOTES` (a folder
with one line for every step and every round that any worker ran), `LEASE` (in seconds) and, where
there is one, `STORE`.
"""

import asyncio
import gc
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ekiden import CallNext, Context, Outcome, Request, RoundLimits, Server

NOTES = Path(os.environ["NOTES"])

server = Server(
    "relay",
    store=os.environ.get("STORE"),
    rounds=RoundLimits(lease_seconds=float(os.environ["LEASE"]), state_bytes=8192),
)


def note(file: str, *words: object) -> None:
    """Append a line as one write, so that those of several processes never mix."""
    line = " ".join(str(word) for word in (*words, os.getpid())) + "\n"
    descriptor = os.open(NOTES / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@server.middleware
async def note_round(request: Request, call_next: CallNext) -> Outcome:
    """Note which process served which round of which call."""
    if request.method == "tools/call":
        note("rounds", request.params["arguments"]["call"])
    return await call_next(request)


# Ten rounds


class Report(BaseModel):
    """How a call went, from the inside."""

    ticket: str
    answers: list[str]
    ran: dict[str, int]
    """Which process ran which step."""


def work(call: str, step: str) -> int:
    """A step: what it does can be counted, what it returns tells who ran it."""
    note("steps", call, step)
    return os.getpid()


STEP_BEFORE = {2: "order", 4: "reserve", 5: "pack", 8: "ship"}


@server.tool
async def ten(call: str, ctx: Context) -> Report:
    """Ask ten questions, with steps between some of them and one at the end."""
    ticket = str(ctx.uuid())  # Drawn again, it would change every question, and the call would not end.
    answers: list[str] = []
    ran: dict[str, int] = {}
    for number in range(1, 11):
        if number in STEP_BEFORE:
            ran[STEP_BEFORE[number]] = await ctx.step(work, call, STEP_BEFORE[number])
        answer = await ctx.elicit(f"{ticket}: question {number} of {call}?", str)
        answers.append(answer.data or answer.action)
    ran["close"] = await ctx.step(work, call, "close")
    return Report(ticket=ticket, answers=answers, ran=ran)


# Steps that the test holds while they run


async def held(call: str, step: str, gate: int) -> int:
    """A step that tells the test that it has begun, and has its effect when the test lets it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate)
    try:
        writer.write(f"{step} {os.getpid()}\n".encode())
        if await reader.readline() != b"go\n":
            raise RuntimeError("the gate was closed")
    finally:
        writer.close()
    return work(call, step)


async def gated(call: str, gate: int, ctx: Context) -> Report:
    """Three steps between two questions, and one before the end."""
    answers: list[str] = []
    ran: dict[str, int] = {}
    answer = await ctx.elicit(f"question 1 of {call}?", str)
    answers.append(answer.data or answer.action)
    for step in ("one", "two", "three"):
        ran[step] = await ctx.step(held, call, step, gate)
    answer = await ctx.elicit(f"question 2 of {call}?", str)
    answers.append(answer.data or answer.action)
    ran["four"] = await ctx.step(held, call, "four", gate)
    return Report(ticket=str(ctx.uuid()), answers=answers, ran=ran)


server.tool(gated)
if "STORE" in os.environ:
    server.tool(name="strict", once=True)(gated)


async def blocking(call: str, step: str, gate: int) -> int:
    """The same, but nothing else runs in this process meanwhile: it waits without an `await`."""
    with socket.create_connection(("127.0.0.1", gate)) as connection:
        connection.sendall(f"{step} {os.getpid()}\n".encode())
        if connection.recv(16) != b"go\n":
            raise RuntimeError("the gate was closed")
    return work(call, step)


@server.tool
async def blocks(call: str, gate: int, ctx: Context) -> Report:
    """A question, and two steps that block the event loop."""
    answer = await ctx.elicit(f"question 1 of {call}?", str)
    ran = {step: await ctx.step(blocking, call, step, gate) for step in ("one", "two")}
    return Report(ticket="", answers=[answer.data or answer.action], ran=ran)


@server.tool
async def bulky(call: str, ctx: Context) -> Report:
    """A call whose journal is too large for its token."""
    page: dict[str, Any] = await ctx.step(load_page, call)
    answer = await ctx.elicit(f"question 1 of {call}?", str)
    again = await ctx.elicit(f"question 2 of {call}?", str)
    answers = [answer.data or answer.action, again.data or again.action]
    return Report(ticket=page["text"][:10], answers=answers, ran={"page": page["pid"]})


def load_page(call: str) -> dict[str, Any]:
    """A step with a large value."""
    return {"pid": work(call, "page"), "text": "0123456789" * 2000}


@server.tool
async def tidy(call: str) -> bool:
    """Let everything that abandoned rounds still do come to its end, and have it complain if it wants to."""
    async with asyncio.timeout(10.0):
        while any("Leg." in str(task.get_coro()) for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)
    gc.collect()  # An exception that nobody looked at is reported when its task is collected.
    return True


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    server.run("http", port=int(sys.argv[1]), log_level="warning", grace=2)
