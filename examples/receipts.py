"""An extension of the protocol, both sides: what a tool gives is handed out against a receipt.

A client that knows the extension gets a receipt at once, and redeems it. Others get the result as ever.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from ekiden import CallNext, Client, Complete, InvalidParams, Outcome, Request, Server
from ekiden.extensions import (
    ClientExtension,
    Extension,
    ExtensionContext,
    ExtensionResult,
    Interrupted,
)

RECEIPTS = "com.example/receipts"

goods: dict[int, dict[str, Any]] = {}
"""What can be redeemed, by number. A real shop has a database."""


@asynccontextmanager
async def printer() -> AsyncGenerator[list[str], None]:
    """What the extension needs while the server runs."""
    lines: list[str] = []
    yield lines
    print("printed:", ", ".join(lines))


receipts = Extension(
    RECEIPTS,
    settings={"currency": "EUR"},
    result_types=["receipt"],
    sends=["notifications/receipts/printed"],
    lifespan=printer,
)


@receipts.intercept(methods=["tools/call"])
async def hand_out(request: Request, call_next: CallNext) -> Outcome:
    """Answer a call with a receipt, if the client can do something with one."""
    outcome = await call_next(request)
    declared = request.meta.capabilities.get("extensions", {})
    if RECEIPTS not in declared or not isinstance(outcome, Complete):
        return outcome
    number = len(goods) + 1
    goods[number] = outcome.as_dict()
    return ExtensionResult({"number": number}, result_type="receipt")


@receipts.method("receipts/redeem")
async def redeem(number: int, ctx: ExtensionContext) -> dict[str, Any]:
    """What was bought, once."""
    if number not in goods:
        raise InvalidParams(f"There is no receipt {number}")
    ctx.state.append(f"receipt {number}")
    await ctx.notify("notifications/receipts/printed", {"number": number})
    return goods.pop(number)


@receipts.notification("notifications/receipts/lost")
async def lost(number: int) -> None:
    """A client tells that it has lost a receipt."""
    goods.pop(number, None)


server = Server("shop", extensions=[receipts])


@server.tool
async def buy(item: str) -> str:
    """Buy something."""
    return f"One {item}."


wallet = ClientExtension(RECEIPTS)


@wallet.result("receipt")
async def pick_up(call: Interrupted) -> dict[str, Any]:
    """Finish a call that was answered with a receipt."""
    return await call.request("receipts/redeem", {"number": call.result["number"]})


@wallet.notification("notifications/receipts/printed")
def printed(params: dict[str, Any]) -> None:
    """Called while the receipt is redeemed."""
    print("the shop has printed receipt", params["number"])


async def main() -> None:
    """Buy with and without the extension."""
    async with Client(server, extensions=[wallet]) as client:
        print("the shop says:", client.server_extension(RECEIPTS))
        result = await client.call_tool("buy", {"item": "tea"})
        print(result.content[0].text)  # type: ignore[union-attr]
    async with Client(server) as stranger:
        result = await stranger.call_tool("buy", {"item": "cup"})
        print(result.content[0].text)  # type: ignore[union-attr]


if __name__ == "__main__":
    asyncio.run(main())
