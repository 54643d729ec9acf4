"""The README's example: a tool that asks in the middle of its body, and pays back once.

Serve it with `python examples/refund.py`; with several workers, give them one key in `EKIDEN_KEYS`.
"""

from pydantic import BaseModel

from ekiden import Context, Server

server = Server("shop")


class Order(BaseModel):
    id: str
    customer: str
    total: int


class Confirm(BaseModel):
    ok: bool


async def load_order(order_id: str) -> Order:
    return Order(id=order_id, customer="Aiko", total=120)


async def pay_back(order: Order) -> None:
    print(f"paid {order.total} back to {order.customer}")


@server.tool
async def refund(order_id: str, ctx: Context) -> str:
    """Refund an order, after the user has agreed."""
    order = await ctx.step(load_order, order_id)  # once in the whole call, not once a round
    answer = await ctx.elicit(f"Refund {order.total} to {order.customer}?", Confirm)
    if answer.action != "accept" or not answer.data.ok:
        return "Not refunded."
    await ctx.step(pay_back, order)
    return f"Refunded {order.total}."


if __name__ == "__main__":
    server.run()
