"""A server on FastMCP, as its author wrote it: `ekiden run examples/their_fastmcp.py`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.dependencies import Depends
from mcp_types import CompletionArgument, CompletionContext
from pydantic import BaseModel


@asynccontextmanager
async def shop(server: FastMCP) -> AsyncIterator[dict[str, Any]]:
    yield {"orders": {"A-17": 1250, "A-18": 480}}


mcp = FastMCP("shop", instructions="Ask before you refund.", lifespan=shop)


class Confirm(BaseModel):
    ok: bool


def currency() -> str:
    return "cents"


@mcp.tool(title="Add numbers", annotations={"readOnlyHint": True}, tags={"sums"}, meta={"team": "sums"})
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool
async def refund(order_id: str, ctx: Context, unit: str = Depends(currency)) -> str:
    """Refund an order, after the user has agreed."""
    cents = ctx.lifespan_context["orders"][order_id]
    await ctx.report_progress(1, 2, "found the order")
    answer = await ctx.elicit(f"Refund {cents} {unit} for {order_id}?", Confirm)
    if answer.action != "accept" or not answer.data.ok:
        return "Not refunded."
    await ctx.report_progress(2, 2, "refunded")
    return f"Refunded {cents} {unit}."


@mcp.tool
async def visits(ctx: Context) -> int:
    """Count the calls of this session."""
    count = (await ctx.get_state("visits") or 0) + 1
    await ctx.set_state("visits", count)
    return count


@mcp.resource("orders://all", mime_type="text/plain")
def orders() -> str:
    """All orders."""
    return "A-17, A-18"


@mcp.resource("orders://{order_id}")
async def order(order_id: str, ctx: Context) -> str:
    """One order."""
    return f"{order_id}: {ctx.lifespan_context['orders'][order_id]} cents"


@mcp.prompt
def apology(order_id: str) -> str:
    """Write an apology for an order."""
    return f"Write an apology for order {order_id}."


@mcp.completion
def complete(ref: object, argument: CompletionArgument, context: CompletionContext | None) -> list[str]:
    return [order_id for order_id in ("A-17", "A-18") if order_id.startswith(argument.value)]


if __name__ == "__main__":
    mcp.run("http")
