"""A shop that refunds: two questions by rounds, then a task with a question in it.

ekiden run examples/returns.py --store sqlite:///returns.db
ekiden call http://127.0.0.1:8000/mcp refund order_id=42
"""

import asyncio
import os
import sys
from typing import Literal

from pydantic import BaseModel

from ekiden import CancelledTask, Context, Retry, Server, TaskLimits

server = Server(
    "shop",
    store=os.environ.get("EKIDEN_STORE", "sqlite:///returns.db"),
    tasks=TaskLimits(lease_seconds=2),  # So that nobody has to wait long in a demo.
)


class Order(BaseModel):
    order_id: str
    customer: str
    total: float


async def load_order(order_id: str) -> Order:
    tell("load the order")
    return Order(order_id=order_id, customer="Ada", total=59.9)


async def reserve(order: Order) -> str:
    tell("reserve the money")
    await asyncio.sleep(0.2)
    return f"reservation-{order.order_id}"


async def pay_back(reservation: str, ctx: Context) -> str:
    tell(f"pay back, with the idempotency key {ctx.step_key}")
    await asyncio.sleep(0.2)
    return f"payment of {reservation}"


async def release(cancelled: CancelledTask) -> None:
    """Clean up after a refund that was cancelled."""
    tell(f"release {cancelled.steps.get('reserve')}")


@server.tool(task="deferred", on_cancel=release)
async def refund(order_id: str, ctx: Context) -> str:
    """Refund an order, after the user has agreed."""
    order = await ctx.step(load_order, order_id)
    sure = await ctx.elicit(f"Refund {order.total} to {order.customer}?", bool, key="sure")
    if sure.action != "accept" or not sure.data:
        return "Not refunded."
    why = await ctx.elicit("Why?", Literal["late", "broken", "other"], key="why")
    await ctx.background()
    reservation = await ctx.step(reserve, order)
    await ctx.progress(1, 2, "the money is reserved")
    boss = await ctx.elicit("Does the boss agree?", bool, key="boss")
    if boss.action != "accept" or not boss.data:
        return "The boss did not agree."
    await ctx.step(pay_back, reservation, ctx, retry=Retry(attempts=5))
    await ctx.sleep(0.5)  # The bank takes a while; nobody waits in memory.
    return f"Refunded {order.total} to {order.customer} ({why.data})."


def tell(what: str) -> None:
    """Say which process does what; a demo wants to see it."""
    print(f"  process {os.getpid()}: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    server.run()
