"""A server behind a gateway: its tool asks before it pays."""

import os

from ekiden import Context, Server

server = Server("billing")


@server.tool
async def refund(order_id: str, amount: float, ctx: Context) -> str:
    """Refund an order, after the user has agreed."""
    sure = await ctx.elicit(f"Refund {amount:.2f} {os.environ['CURRENCY']} for {order_id}?", bool)
    return f"{order_id}: refunded" if sure.action == "accept" and sure.data else f"{order_id}: not refunded"
