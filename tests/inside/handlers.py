"""The same handlers for every host: whatever can register tools, prompts and resources gets them."""

import asyncio
import os
from pathlib import Path
from typing import Any

from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel

from ekiden import Context, InputRequired

NOTES = Path(os.environ.get("NOTES", "notes"))
"""Where steps are noted: a line for each run."""


class Confirm(BaseModel):
    ok: bool


async def charge(order: str) -> str:
    """An effect that must not happen twice."""
    with (NOTES / order).open("a") as notes:
        notes.write(f"charge {os.getpid()}\n")
    return f"receipt of {order}"


async def pack(order: str) -> str:
    with (NOTES / order).open("a") as notes:
        notes.write(f"pack {os.getpid()}\n")
    return f"parcel of {order}"


async def refund(order: str, ctx: Context) -> str:
    """A step between two questions."""
    first = await ctx.elicit(f"Refund {order}?", Confirm)
    receipt = await ctx.step(charge, order)
    second = await ctx.elicit(f"Send the {receipt}?", Confirm)
    return f"{receipt}: {first.action}, {second.action}"


async def trip(ctx: Context) -> str:
    """Everything that can be asked, at once."""
    said = SamplingMessage(role="user", content=TextContent(type="text", text="Where to?"))
    form, message, roots = await asyncio.gather(
        ctx.elicit("Go?", Confirm), ctx.sample([said], max_tokens=10), ctx.list_roots()
    )
    text = getattr(message.content, "text", "")
    return f"{form.action}, {text}, {roots[0].uri}"


async def draws(ctx: Context) -> dict[str, Any]:
    """What a round draws, the next one still knows."""
    drawn = [ctx.now().isoformat(), str(ctx.uuid()), ctx.random()]
    await ctx.sleep(0.01)
    shown = await ctx.elicit(f"Keep {drawn[1]}?", Confirm)
    await ctx.checkpoint()
    return {"same": [ctx.now().isoformat() >= drawn[0], shown.action]}


async def report(ctx: Context) -> str:
    """Progress and a log message, on the stream of the call."""
    await ctx.progress(1, 2, "half")
    await ctx.log("info", "working")
    await ctx.progress(2, 2, "done")
    return "reported"


async def by_hand(ctx: Context) -> Any:
    """The manual way: what is asked is returned, and the answer read in the next round."""
    answered = ctx.input_responses.get("name")
    if answered is None:
        question = {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Your name?",
                "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
            },
        }
        return InputRequired(input_requests={"name": question}, request_state="asked")
    return f"{ctx.request_state}, {answered.action}"


async def held(ctx: Context) -> str:
    """Holds something that no other process could go on with."""
    async with asyncio.Lock():
        answer = await ctx.elicit("Hold on?", Confirm)
    return f"held: {answer.action}"


async def parcel(order: str, ctx: Context) -> str:
    """A task from the start, which asks."""
    receipt = await ctx.step(charge, order)
    answer = await ctx.elicit(f"Pack {order}?", Confirm)
    return f"{receipt}, {await ctx.step(pack, order)}: {answer.action}"


async def later(order: str, ctx: Context) -> str:
    """Asks first, and goes on as a task."""
    answer = await ctx.elicit(f"Ship {order}?", Confirm)
    await ctx.background()
    return f"{await ctx.step(charge, order)}: {answer.action}"


async def slowly(order: str, ctx: Context) -> str:
    """A task that waits for a time, and for nobody."""
    await ctx.step(charge, order)
    await ctx.sleep(0.05)
    return await ctx.step(pack, order)


async def letter(name: str, ctx: Context) -> str:
    """A prompt that asks."""
    answer = await ctx.elicit(f"A letter to {name}?", Confirm)
    return f"Dear {name}: {answer.action}"


async def order_page(number: str, ctx: Context) -> str:
    """A resource that asks."""
    answer = await ctx.elicit(f"Show order {number}?", Confirm)
    return f"order {number}: {answer.action}"


async def counter(ctx: Context) -> str:
    """A resource of one URI that asks."""
    answer = await ctx.elicit("Count?", Confirm)
    return f"counted: {answer.action}"


def register(target: Any) -> None:
    """Register everything with a `Server` or a `Durable`."""
    for function in (refund, trip, draws, report, by_hand):
        target.tool(function)
    target.tool(name="pay", once=True)(refund)
    target.tool(resume="parked")(held)
    target.tool(task="optional")(parcel)
    target.tool(task="deferred")(later)
    target.tool(task="required")(slowly)
    target.prompt(letter)
    target.resource("shop://orders/{number}")(order_page)
    target.resource("shop://counter")(counter)
