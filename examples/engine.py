"""The engine without a transport: requests as dicts in, results as dicts out."""

import asyncio
from typing import Any

from pydantic import BaseModel

from ekiden import Context, Server
from ekiden.engine import Engine, HostStream, principal_of

server = Server("shop", principal=principal_of)
engine = Engine(server)


class Confirm(BaseModel):
    ok: bool


@server.tool
async def refund(order_id: str, ctx: Context) -> str:
    """Refund an order, after the user has agreed."""
    answer = await ctx.elicit(f"Refund {order_id}?", Confirm)
    return "Refunded." if answer.action == "accept" and answer.data.ok else "Not refunded."


async def notify(method: str, params: dict[str, Any]) -> None:
    """Progress and log messages of the handler: a host sends them on."""
    print(method, params)


async def answer(params: dict[str, Any], principal: str | None) -> dict[str, Any]:
    """What a host does with each `tools/call` that it gets."""
    request = engine.request("tools/call", params, principal=principal)
    outcome = await engine.answer(request, HostStream(request, notify))
    return engine.result(request, outcome)


async def main() -> str:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    call = {"name": "refund", "arguments": {"order_id": "7"}, "_meta": meta}
    async with engine.running():
        asked = await answer(call, "aiko")
        responses = {key: {"action": "accept", "content": {"ok": True}} for key in asked["inputRequests"]}
        retry = {**call, "requestState": asked["requestState"], "inputResponses": responses}
        done = await answer(retry, "aiko")
    text: str = done["content"][0]["text"]
    return text


if __name__ == "__main__":
    print(asyncio.run(main()))
