"""A server that only signed-in callers may use: `ekiden run examples/guarded.py`.

`RESOURCE` is the URL by which clients know the endpoint, `ISSUER` the authorization server.
"""

import os

from pydantic import BaseModel

from ekiden import Auth, Context, Server

server = Server(
    "shop",
    auth=Auth(
        os.environ.get("RESOURCE", "http://localhost:8000/mcp"),
        issuer=os.environ.get("ISSUER", "http://localhost:9000"),
        scopes=["shop:read"],
    ),
)


class Confirm(BaseModel):
    ok: bool


async def reserve(order_id: str) -> str:
    print(f"reserved {order_id}")
    return order_id


async def pay_back(order_id: str, subject: str) -> None:
    print(f"paid {order_id} back to {subject}")


@server.tool
async def whoami(ctx: Context) -> str:
    """Who is calling, and from where."""
    assert ctx.principal is not None
    await ctx.progress(1, message="looking")
    return f"{ctx.principal.subject} from {ctx.request.address}, may {' '.join(sorted(ctx.principal.scopes))}"


@server.tool(scopes=["shop:admin"])
async def close_shop() -> str:
    """Close the shop."""
    return "closed"


@server.tool
async def refund(order_id: str, ctx: Context) -> str:
    """Refund an order, after the user has agreed."""
    await ctx.step(reserve, order_id)
    answer = await ctx.elicit(f"Refund {order_id}?", Confirm)
    if not answer.data or not answer.data.ok:
        return "Not refunded."
    await ctx.require_scope("shop:pay")
    assert ctx.principal is not None
    await ctx.step(pay_back, order_id, ctx.principal.subject)
    return f"Refunded {order_id}."


if __name__ == "__main__":
    server.run("http")
