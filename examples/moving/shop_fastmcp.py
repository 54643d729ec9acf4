"""The shop on FastMCP 4. `deliver` is for clients of 2026, the other tools that ask for those of 2025."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel


@asynccontextmanager
async def open_shop(server: FastMCP) -> AsyncIterator[dict[str, Any]]:
    yield {"orders": {"A-17": 1250, "A-18": 480}}


mcp = FastMCP("shop", instructions="Ask before you refund.", lifespan=open_shop)


class Confirm(BaseModel):
    ok: bool


@mcp.tool(title="Price of an order")
async def price(order_id: str, ctx: Context) -> str:
    """Say what an order costs."""
    orders = ctx.lifespan_context["orders"]
    if order_id not in orders:
        raise ToolError(f"There is no order {order_id}.")
    return f"{orders[order_id]} cents"


@mcp.tool
async def refund(order_id: str, ctx: Context) -> str:
    """Refund an order, after the user has agreed."""
    cents = ctx.lifespan_context["orders"][order_id]
    await ctx.report_progress(1, 2, "found the order")
    answer = await ctx.elicit(f"Refund {cents} cents for {order_id}?", Confirm)
    if answer.action != "accept" or not answer.data.ok:
        return "Not refunded."
    return await pay_back(order_id, cents)


async def pay_back(order_id: str, cents: int) -> str:
    return f"Refunded {cents} cents for {order_id}."


@mcp.tool
async def wrap(order_id: str, ctx: Context) -> str:
    """Wrap an order as the user likes it."""
    answer = await ctx.elicit("Which paper?", ["red", "blue"])
    return f"{order_id} in {answer.data}" if answer.action == "accept" else "Not wrapped."


TEXT = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


def question(message: str, known: dict[str, str]) -> InputRequiredResult:
    form = ElicitRequestFormParams(message=message, requested_schema=TEXT)
    return InputRequiredResult(
        input_requests={"value": ElicitRequest(params=form)}, request_state=json.dumps(known)
    )


@mcp.tool
async def deliver(order_id: str, ctx: Context) -> str | InputRequiredResult:
    """Deliver an order where and when the user says."""
    known = json.loads(ctx.request_state or "{}")
    answer = (ctx.input_responses or {}).get("value")
    if isinstance(answer, ElicitResult):
        if answer.action != "accept" or answer.content is None:
            return "Not delivered."
        known["day" if "street" in known else "street"] = answer.content["value"]
    if "street" not in known:
        return question(f"Where does {order_id} go?", known)
    if "day" not in known:
        return question(f"To {known['street']} on which day?", known)
    return f"{order_id} goes to {known['street']} on {known['day']}."


@mcp.tool
async def slogan(product: str, ctx: Context) -> str:
    """Have the client's model write a slogan."""
    asked = SamplingMessage(role="user", content=TextContent(text=f"A slogan for {product}."))
    message = await ctx.session.create_message([asked], max_tokens=40)
    assert isinstance(message.content, TextContent)
    return message.content.text


@mcp.resource("orders://{order_id}", mime_type="text/plain")
async def order(order_id: str, ctx: Context) -> str:
    """One order."""
    return f"{order_id}: {ctx.lifespan_context['orders'][order_id]} cents"


@mcp.prompt
async def apology(order_id: str) -> str:
    """Write an apology for an order."""
    return f"Write an apology for order {order_id}."


if __name__ == "__main__":
    mcp.run("stdio", show_banner=False)
