"""The server of the soak: calls, rounds and tasks, whose steps are noted outside.

It is run by `ekiden run --workers 3`. `NOTES` names a folder in which every process has a file of its own,
with one line for every step that began: when, for which call, which, and under which idempotency key.
"""

import os
import time
from pathlib import Path
from typing import Any

from ekiden import CallNext, Context, Outcome, Request, RoundLimits, Server, StatusError, TaskLimits

LEASE_SECONDS = 4.0


def whose(request: Request) -> str | None:
    """The principal: a header stands in for a token here."""
    return request.header("x-user")


server = Server(
    "soak",
    principal=whose,
    rounds=RoundLimits(lease_seconds=LEASE_SECONDS),
    tasks=TaskLimits(lease_seconds=LEASE_SECONDS, sweep_seconds=1.0, poll_seconds=0.3, attempts=50),
)

_files: list[int] = []


def note(call: str, step: str, key: str) -> None:
    """Append a line in one write."""
    if not _files:
        own = Path(os.environ["NOTES"]) / str(os.getpid())
        _files.append(os.open(own, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    os.write(_files[0], f"{time.monotonic():.6f} {call} {step} {key}\n".encode())


def effect(call: str, step: str, ctx: Context) -> str:
    """A step with an effect outside; the outside knows it by its key."""
    note(call, step, ctx.step_key)
    return f"{call}:{step}"


@server.middleware
async def only_its_own(request: Request, call_next: CallNext) -> Outcome:
    """The arguments name who calls; nobody can call for somebody else."""
    arguments: Any = request.params.get("arguments")
    if request.method == "tools/call" and arguments and arguments["who"] != whose(request):
        raise StatusError(403, "not your call")
    return await call_next(request)


@server.tool
async def echo(who: str, call: str) -> dict[str, str]:
    """A call of one round."""
    return {"who": who, "call": call}


@server.tool
async def ask(who: str, call: str, ctx: Context) -> dict[str, Any]:
    """A call of three rounds, with a step before each of the later two ends."""
    answers: list[str] = []
    steps: list[str] = []
    for number in ("1", "2"):
        answer = await ctx.elicit(f"{call} asks {number}", str)
        answers.append(answer.data or answer.action)
        steps.append(await ctx.step(effect, call, f"ask{number}", ctx))
    return {"who": who, "call": call, "answers": answers, "steps": steps}


@server.tool(task="deferred")
async def work(who: str, call: str, ctx: Context) -> dict[str, Any]:
    """A call that becomes a task after its first answer, and asks again there."""
    first = await ctx.elicit(f"{call} asks 1", str)
    await ctx.background()
    steps = [await ctx.step(effect, call, "work1", ctx)]
    await ctx.sleep(0.2)
    second = await ctx.elicit(f"{call} asks 2", str)
    steps.append(await ctx.step(effect, call, "work2", ctx))
    return {"who": who, "call": call, "answers": [first.data, second.data], "steps": steps}
