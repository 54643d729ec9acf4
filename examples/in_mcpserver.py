"""Durable tools in a server of the official SDK. Run it, and call it at http://127.0.0.1:8000/mcp."""

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from ekiden import Context
from ekiden.integrations.mcp import Durable

server = MCPServer("shop")
durable = Durable(server, store="sqlite:///shop.db")


class Confirm(BaseModel):
    ok: bool


async def pay_back(order_id: str) -> str:
    print(f"paid {order_id} back")
    return f"receipt of {order_id}"


@durable.tool(once=True, task="deferred")
async def refund(order_id: str, ctx: Context) -> str:
    """Refund an order, after the user has agreed."""
    answer = await ctx.elicit(f"Refund {order_id}?", Confirm)
    if answer.action != "accept" or not answer.data.ok:
        return "Not refunded."
    await ctx.background()
    return await ctx.step(pay_back, order_id)


@server.tool()
def opening_hours() -> str:
    """A tool of the server's own."""
    return "9 to 5"


if __name__ == "__main__":
    server.run("streamable-http")
