"""The shop on the official SDK 1, whose clients are those of 2025."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel, Field


@dataclass
class Shop:
    orders: dict[str, int]


@asynccontextmanager
async def open_shop(server: FastMCP) -> AsyncIterator[Shop]:
    yield Shop({"A-17": 1250, "A-18": 480})


mcp = FastMCP("shop", instructions="Ask before you refund.", lifespan=open_shop, log_level="WARNING")


class Confirm(BaseModel):
    ok: bool


@mcp.tool(title="Price of an order")
async def price(order_id: str, ctx: Context) -> str:
    """Say what an order costs."""
    orders = ctx.request_context.lifespan_context.orders
    if order_id not in orders:
        raise ToolError(f"There is no order {order_id}.")
    return f"{orders[order_id]} cents"


@mcp.tool()
async def refund(order_id: str, ctx: Context) -> str:
    """Refund an order, after the user has agreed."""
    cents = ctx.request_context.lifespan_context.orders[order_id]
    await ctx.report_progress(1, 2, "found the order")
    answer = await ctx.elicit(f"Refund {cents} cents for {order_id}?", Confirm)
    if answer.action != "accept" or not answer.data.ok:
        return "Not refunded."
    return await pay_back(order_id, cents)


async def pay_back(order_id: str, cents: int) -> str:
    return f"Refunded {cents} cents for {order_id}."


class Paper(BaseModel):
    value: str = Field(json_schema_extra={"enum": ["red", "blue"]})


@mcp.tool()
async def wrap(order_id: str, ctx: Context) -> str:
    """Wrap an order as the user likes it."""
    answer = await ctx.elicit("Which paper?", Paper)
    return f"{order_id} in {answer.data.value}" if answer.action == "accept" else "Not wrapped."


class Text(BaseModel):
    value: str


@mcp.tool()
async def deliver(order_id: str, ctx: Context) -> str:
    """Deliver an order where and when the user says."""
    street: Any = await ctx.elicit(f"Where does {order_id} go?", Text)
    if street.action != "accept":
        return "Not delivered."
    day: Any = await ctx.elicit(f"To {street.data.value} on which day?", Text)
    if day.action != "accept":
        return "Not delivered."
    return f"{order_id} goes to {street.data.value} on {day.data.value}."


@mcp.tool()
async def slogan(product: str, ctx: Context) -> str:
    """Have the client's model write a slogan."""
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=f"A slogan for {product}."))
    message = await ctx.session.create_message([asked], max_tokens=40, related_request_id=ctx.request_id)
    assert isinstance(message.content, TextContent)
    return message.content.text


@mcp.resource("orders://{order_id}", mime_type="text/plain")
async def order(order_id: str) -> str:
    """One order."""
    orders = mcp.get_context().request_context.lifespan_context.orders
    return f"{order_id}: {orders[order_id]} cents"


@mcp.prompt()
async def apology(order_id: str) -> str:
    """Write an apology for an order."""
    return f"Write an apology for order {order_id}."


if __name__ == "__main__":
    mcp.run("stdio")
