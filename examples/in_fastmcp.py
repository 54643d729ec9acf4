"""Durable tools in a FastMCP server. Run it, and call it at http://127.0.0.1:8000/mcp."""

from fastmcp import FastMCP
from pydantic import BaseModel

from ekiden import Context
from ekiden.integrations.fastmcp import Durable

mcp = FastMCP("shop")
durable = Durable(mcp, store="sqlite:///shop.db")


class Confirm(BaseModel):
    ok: bool


async def pay_back(order_id: str) -> str:
    print(f"paid {order_id} back", flush=True)
    return f"receipt of {order_id}"


@durable.tool(once=True, task="deferred")
async def refund(order_id: str, ctx: Context) -> str:
    """Refund an order, after the user has agreed."""
    answer = await ctx.elicit(f"Refund {order_id}?", Confirm)
    if answer.action != "accept" or not answer.data.ok:
        return "Not refunded."
    await ctx.background()
    return await ctx.step(pay_back, order_id)


@mcp.tool
def opening_hours() -> str:
    """A tool of the server's own."""
    return "9 to 5"


if __name__ == "__main__":
    mcp.run("http")
