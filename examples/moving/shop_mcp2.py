"""The shop on mcp 2. `refund` and `slogan` are for clients of 2025, `deliver` for those of 2026."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel


@dataclass
class Shop:
    orders: dict[str, int]


@asynccontextmanager
async def open_shop(server: MCPServer[Shop]) -> AsyncIterator[Shop]:
    yield Shop({"A-17": 1250, "A-18": 480})


server = MCPServer("shop", instructions="Ask before you refund.", lifespan=open_shop)


class Confirm(BaseModel):
    ok: bool


@server.tool(title="Price of an order")
async def price(order_id: str, ctx: Context[Shop]) -> str:
    """Say what an order costs."""
    orders = ctx.request_context.lifespan_context.orders
    if order_id not in orders:
        raise ToolError(f"There is no order {order_id}.")
    return f"{orders[order_id]} cents"


@server.tool()
async def refund(order_id: str, ctx: Context[Shop]) -> str:
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
    value: str


async def ask_paper() -> Elicit[Paper]:
    return Elicit("Which paper?", Paper)


@server.tool()
async def wrap(order_id: str, paper: Annotated[Paper, Resolve(ask_paper)]) -> str:
    """Wrap an order as the user likes it."""
    return f"{order_id} in {paper.value}"


TEXT = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


def question(message: str, state: str) -> InputRequiredResult:
    form = ElicitRequestFormParams(message=message, requested_schema=TEXT)
    return InputRequiredResult(input_requests={"value": ElicitRequest(params=form)}, request_state=state)


@server.tool()
async def deliver(order_id: str, ctx: Context[Shop]) -> str | InputRequiredResult:
    """Deliver an order where and when the user says."""
    state, answer = ctx.request_state, (ctx.input_responses or {}).get("value")
    if state is None:
        return question(f"Where does {order_id} go?", "street")
    if not isinstance(answer, ElicitResult) or answer.action != "accept" or answer.content is None:
        return "Not delivered."
    said = str(answer.content["value"])
    if state == "street":
        return question(f"To {said} on which day?", f"day:{said}")
    return f"{order_id} goes to {state.removeprefix('day:')} on {said}."


@server.tool()
async def slogan(product: str, ctx: Context[Shop]) -> str:
    """Have the client's model write a slogan."""
    asked = SamplingMessage(role="user", content=TextContent(text=f"A slogan for {product}."))
    message = await ctx.session.create_message([asked], max_tokens=40, related_request_id=ctx.request_id)
    assert isinstance(message.content, TextContent)
    return message.content.text


@server.resource("orders://{order_id}", mime_type="text/plain")
async def order(order_id: str, ctx: Context[Shop]) -> str:
    """One order."""
    return f"{order_id}: {ctx.request_context.lifespan_context.orders[order_id]} cents"


@server.prompt()
async def apology(order_id: str) -> str:
    """Write an apology for an order."""
    return f"Write an apology for order {order_id}."


if __name__ == "__main__":
    server.run("stdio")
