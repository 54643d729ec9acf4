"""A server of the official SDK, as its author wrote it: `ekiden run examples/their_mcpserver.py`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import Completion, ToolAnnotations
from pydantic import BaseModel


@dataclass
class Shop:
    """What the server opens once: here the orders, in a real one a pool of connections."""

    orders: dict[str, int] = field(default_factory=dict)


@asynccontextmanager
async def shop(server: MCPServer[Shop]) -> AsyncIterator[Shop]:
    yield Shop({"A-17": 1250, "A-18": 480})


server = MCPServer("shop", title="The shop", instructions="Ask before you refund.", lifespan=shop)


class Confirm(BaseModel):
    ok: bool


class Address(BaseModel):
    street: str


async def ask_address(order_id: str) -> Elicit[Address]:
    return Elicit(f"Where does {order_id} go?", Address)


@server.tool(title="Add numbers", annotations=ToolAnnotations(read_only_hint=True), meta={"team": "sums"})
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def refund(order_id: str, ctx: Context[Shop]) -> str:
    """Refund an order, after the user has agreed."""
    cents = ctx.request_context.lifespan_context.orders[order_id]
    await ctx.report_progress(1, 2, "found the order")
    answer = await ctx.elicit(f"Refund {cents} cents for {order_id}?", Confirm)
    if answer.action != "accept" or not answer.data.ok:
        return "Not refunded."
    await ctx.report_progress(2, 2, "refunded")
    return f"Refunded {cents} cents."


@server.tool()
async def ship(order_id: str, address: Annotated[Address, Resolve(ask_address)]) -> str:
    """Ship an order to where the user says."""
    return f"{order_id} goes to {address.street}."


@server.resource("orders://all", mime_type="text/plain")
def orders() -> str:
    """All orders."""
    return "A-17, A-18"


@server.resource("orders://{order_id}")
async def order(order_id: str, ctx: Context[Shop]) -> str:
    """One order."""
    return f"{order_id}: {ctx.request_context.lifespan_context.orders[order_id]} cents"


@server.prompt()
def apology(order_id: str) -> str:
    """Write an apology for an order."""
    return f"Write an apology for order {order_id}."


@server.completion()
async def complete(ref: object, argument: object, context: object) -> Completion:
    return Completion(values=["A-17", "A-18"])


if __name__ == "__main__":
    server.run("streamable-http")
