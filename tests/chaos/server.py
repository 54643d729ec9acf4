"""A server whose steps say outside when they begin, when they end and when they are committed.

It is run by `ekiden run` and `ekiden worker`. From the environment: `EKIDEN_STORE`, `EKIDEN_KEYS`, `NOTES` (a
folder in which every process has a file of its own), `LEASE` (in seconds) and `SKEW` (by how many seconds
its clock is ahead).
"""

import asyncio
import ctypes
import itertools
import os
import signal
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ekiden import CancelledTask, Context, Server, TaskLimits
from ekiden.tasks.run import Run

LEASE = float(os.environ["LEASE"])
SKEW = float(os.environ["SKEW"])
LONG_SECONDS = 0.75 * LEASE
BLOCKED_SECONDS = 1.3 * LEASE
"""How long SIGUSR1 blocks the event loop."""
BEAT_SECONDS = 0.1

_PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # Nobody outlives who started it.

_made: list[int] = []


def note(what: str, *words: object) -> None:
    """Append a line: what happened and when, by the one clock of this machine."""
    line = " ".join([what, f"{time.monotonic():.6f}", *(str(word) for word in words)])
    if not _made:
        own = Path(os.environ["NOTES"]) / str(os.getpid())
        _made.append(os.open(own, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    os.write(_made[0], f"{line}\n".encode())


# What the engine knows, for the judge: whose step it is, and when the engine last looked at its lease.

_looked: ContextVar[tuple[str, int, float]] = ContextVar("looked")
_perform, _recall, _commit = Run.perform, Run.recall, Run.commit


async def _noted_perform(run: Run) -> None:
    note("taken", run.id, run.fence, run.losses)
    try:
        await _perform(run)
    finally:
        note("left", run.id, run.fence)


async def _noted_recall(run: Run) -> Mapping[str, Any]:
    known = await _recall(run)
    _looked.set((run.id, run.fence, time.monotonic()))
    return known


async def _noted_commit(run: Run, entries: Mapping[str, Any]) -> None:
    await _commit(run, entries)
    for key, entry in entries.items():
        if entry.kind == "step":
            note("committed", run.id, key[2:], entry.value)


Run.perform, Run.recall, Run.commit = _noted_perform, _noted_recall, _noted_commit  # type: ignore[method-assign]


async def _beat() -> None:
    """Note every time at which this process stood still."""
    last = time.monotonic()
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        now = time.monotonic()
        if now - last > BEAT_SECONDS + 0.2 * LEASE:
            note("stalled", f"{last:.6f}")
        last = now


@asynccontextmanager
async def _watched(server: Server) -> AsyncGenerator[None, None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, time.sleep, BLOCKED_SECONDS)
    beat = asyncio.create_task(_beat())
    note("up")
    try:
        yield
    finally:
        note("down")
        beat.cancel()
        loop.remove_signal_handler(signal.SIGUSR1)


server = Server(
    "chaos",
    lifespan=_watched,
    clock=lambda: time.time() + SKEW,
    tasks=TaskLimits(lease_seconds=LEASE, sweep_seconds=1.0, message_seconds=0.2, ttl_seconds=3600.0),
)

# Steps. The value of one is the name of the run whose end was committed.

_runs = itertools.count(1)


def begin(step: str) -> str:
    """Note the beginning of a step."""
    task_id, fence, looked = _looked.get()
    run = f"{os.getpid()}-{next(_runs)}"
    note("begin", task_id, step, run, fence, f"{looked:.6f}")
    return run


async def work(step: str, seconds: float) -> str:
    """A step that takes a while."""
    run = begin(step)
    await asyncio.sleep(seconds)
    note("end", run)
    return run


def work_in_thread(step: str, seconds: float) -> str:
    """The same in a thread."""
    run = begin(step)
    time.sleep(seconds)
    note("end", run)
    return run


async def die(step: str) -> str:
    """A step that ends its process."""
    begin(step)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def tidy(cancelled: CancelledTask) -> None:
    """Note that a task was cleaned up after, and which runs of its steps are known."""
    note("tidied", cancelled.task_id, *(f"{step}={run}" for step, (run,) in cancelled.steps.items()))


@server.tool(task="required")
async def short(call: str, ctx: Context) -> str:
    """Several short steps, one of them in a thread; each has something drawn before it."""
    drawn: list[str] = []
    for number in range(5):
        drawn.append(str(ctx.uuid()))
        function = work_in_thread if number == 2 else work
        await ctx.step(function, f"s{number}", 0.05, key=f"s{number}")
    return f"{call} {len(set(drawn))}"


@server.tool(task="required")
async def long(call: str, ctx: Context) -> str:
    """A step that takes the better part of a lease, and then a short one."""
    await ctx.progress(0, 2, "working")
    await ctx.step(work, "s0", LONG_SECONDS, key="s0")
    await ctx.step(work, "s1", 0.01, key="s1")
    return call


@server.tool(task="required", on_cancel=tidy)
async def sleeps(call: str, ctx: Context) -> str:
    """Two steps with a sleep of about a lease between them."""
    await ctx.step(work, "s0", 0.02, key="s0")
    await ctx.sleep(1.2 * LEASE)
    await ctx.step(work, "s1", 0.02, key="s1")
    return call


@server.tool(task="required", on_cancel=tidy)
async def asks(call: str, ctx: Context) -> str:
    """Two steps with a question between them, while a third step runs beside it."""
    await ctx.step(work, "s0", 0.02, key="s0")
    answer = await ctx.elicit(f"what of {call}?", str, key="what")
    await ctx.step(work, "s1", 0.02, key="s1")
    return f"{call} {answer.data}"


@server.tool(task="deferred", on_cancel=tidy)
async def expires(call: str, ctx: Context) -> str:
    """Steps until the time of the task is over, every other one in a thread."""
    await ctx.background(ttl=1.5 * LEASE)
    for number in itertools.count():
        function = work_in_thread if number % 2 else work
        await ctx.step(function, f"s{number}", 0.4 * LEASE, key=f"s{number}")
    return call


@server.tool(task="required")
async def poison(call: str, ctx: Context) -> str:
    """A task that kills the worker that runs it."""
    await ctx.step(work, "s0", 0.02, key="s0")
    await ctx.step(die, "s1", key="s1")
    return call
