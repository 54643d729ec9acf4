"""What steps do outside: module-level functions, as an author would write them.

Every one tells the world that it begins and that it ends. What it then does is in its node.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ekiden import Context

if TYPE_CHECKING:
    from tests.simulation.running import Run

__all__ = ["ACTS", "RUNS", "Basket", "Declined", "audit", "consume", "plain"]

RUNS: dict[int, "Run"] = {}
"""The runs of the case that is simulated, by the id of their context."""


class Declined(Exception):
    """An error that an author lists in `raises=`."""


class Basket(BaseModel):
    of: str
    items: list[str] = []


class _Gone:
    """A value that no codec can keep."""


async def _act(label: str, mix: str, ctx: Context) -> Any:
    """Begin, take the time that it takes, and end: a value, or an exception."""
    run = RUNS[id(ctx)]
    node = run.node(label)
    effect = run.world.begins(run, label)
    try:
        await asyncio.sleep(run.world.seconds(node))
    except asyncio.CancelledError:
        if node["on_cut"] == "slow":
            await asyncio.sleep(0.4)
        if node["on_cut"] != "swallow":
            run.world.ends(effect)
            raise
    run.world.ends(effect)
    return _made(node["value"], label, mix, effect.attempt)


def _act_in_thread(label: str, mix: str, ctx: Context) -> Any:
    run = RUNS[id(ctx)]
    node = run.node(label)
    effect = run.world.begins(run, label)
    run.world.loop.thread_seconds = run.world.seconds(node)
    run.world.ends(effect, run.world.loop.thread_seconds)
    return _made(node["value"], label, mix, effect.attempt)


def _made(value: str, label: str, mix: str, attempt: int) -> Any:
    match value:
        case "dict":
            return {"of": label, "items": [mix]}
        case "model":
            return Basket(of=label, items=[mix])
        case "fails":
            raise LookupError(f"{label} {mix}")
        case "raises":
            raise Declined(label, mix)
        case "retried" if attempt < 2:
            raise ConnectionError(label)
        case "unkept":
            return _Gone()
        case "big":
            return 2**70
        case "wrong":
            return 5
        case _:
            return f"{label}:{mix}"


async def plain(label: str, mix: str, drawn: str, ctx: Context) -> str:
    return await _act(label, mix, ctx)  # type: ignore[no-any-return]


def plain_in_thread(label: str, mix: str, drawn: str, ctx: Context) -> str:
    return _act_in_thread(label, mix, ctx)  # type: ignore[no-any-return]


async def unannotated(label, mix, drawn, ctx):  # type: ignore[no-untyped-def]
    return await _act(label, mix, ctx)


def unannotated_in_thread(label, mix, drawn, ctx):  # type: ignore[no-untyped-def]
    return _act_in_thread(label, mix, ctx)


async def basket(label: str, mix: str, drawn: str, ctx: Context) -> Basket:
    return await _act(label, mix, ctx)  # type: ignore[no-any-return]


def basket_in_thread(label: str, mix: str, drawn: str, ctx: Context) -> Basket:
    return _act_in_thread(label, mix, ctx)  # type: ignore[no-any-return]


async def audit(label: str, mix: str, drawn: str, ctx: Context) -> str:
    """What a new version does where the old one did something else."""
    return await _act(label, mix, ctx)  # type: ignore[no-any-return]


async def consume(label: str, basket: dict[str, Any], ctx: Context) -> str:
    """Changes what it was given."""
    run = RUNS[id(ctx)]
    run.world.ends(run.world.begins(run, label))
    taken = basket["items"].pop()
    basket["taken"] = taken
    return f"{label}:{taken}"


ACTS: dict[str, tuple[Any, Any]] = {
    "dict": (unannotated, unannotated_in_thread),
    "unkept": (unannotated, unannotated_in_thread),
    "big": (unannotated, unannotated_in_thread),
    "model": (basket, basket_in_thread),
}
"""The functions for a kind of value, async and in a thread; `plain` for all others."""
