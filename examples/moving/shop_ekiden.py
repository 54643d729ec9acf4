"""A shop on ekiden: what the servers beside it do, for clients of both eras."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp_types import TextContent
from pydantic import BaseModel

from ekiden import Context, Server, ToolError


class Shop(BaseModel):
    orders: dict[str, int]


@asynccontextmanager
async def open_shop(server: Server) -> AsyncIterator[Shop]:
    yield Shop(orders={"A-17": 1250, "A-18": 480})


server = Server("shop", instructions="Ask before you refund.", lifespan=open_shop)


class Confirm(BaseModel):
    ok: bool


@server.tool(title="Price of an order")
async def price(order_id: str, ctx: Context[Shop]) -> str:
    """Say what an order costs."""
    if order_id not in ctx.state.orders:
        raise ToolError(f"There is no order {order_id}.")
    return f"{ctx.state.orders[order_id]} cents"


@server.tool
async def refund(order_id: str, ctx: Context[Shop]) -> str:
    """Refund an order, after the user has agreed."""
    cents = ctx.state.orders[order_id]
    await ctx.progress(1, 2, "found the order")
    answer = await ctx.elicit(f"Refund {cents} cents for {order_id}?", Confirm)
    if answer.action != "accept" or not answer.data.ok:
        return "Not refunded."
    return await ctx.step(pay_back, order_id, cents)


async def pay_back(order_id: str, cents: int) -> str:
    return f"Refunded {cents} cents for {order_id}."


@server.tool
async def wrap(order_id: str, ctx: Context) -> str:
    """Wrap an order as the user likes it."""
    answer = await ctx.elicit("Which paper?", ["red", "blue"])
    return f"{order_id} in {answer.data}" if answer.action == "accept" else "Not wrapped."


@server.tool
async def deliver(order_id: str, ctx: Context) -> str:
    """Deliver an order where and when the user says."""
    street = await ctx.elicit(f"Where does {order_id} go?", str)
    if street.action != "accept":
        return "Not delivered."
    day = await ctx.elicit(f"To {street.data} on which day?", str)
    if day.action != "accept":
        return "Not delivered."
    return f"{order_id} goes to {street.data} on {day.data}."


@server.tool
async def slogan(product: str, ctx: Context) -> str:
    """Have the client's model write a slogan."""
    message = await ctx.sample(f"A slogan for {product}.", max_tokens=40)
    assert isinstance(message.content, TextContent)
    return message.content.text


@server.resource("orders://{order_id}", mime_type="text/plain")
async def order(order_id: str, ctx: Context[Shop]) -> str:
    """One order."""
    return f"{order_id}: {ctx.state.orders[order_id]} cents"


@server.prompt
async def apology(order_id: str) -> str:
    """Write an apology for an order."""
    return f"Write an apology for order {order_id}."


if __name__ == "__main__":
    server.run("stdio")
