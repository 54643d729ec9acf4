"""The client page's examples, each a function that takes what it talks to."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    TextContent,
)
from pydantic import BaseModel

from ekiden import Client, ClientLimits, PendingCall, TaskHandle


async def elicit(params: ElicitRequestFormParams) -> ElicitResult:
    """Fill in a form: here every question is answered with its default, or not at all."""
    properties: dict[str, Any] = params.requested_schema["properties"]
    content = {name: field["default"] for name, field in properties.items() if "default" in field}
    if set(params.requested_schema.get("required", ())) - set(content):
        return ElicitResult(action="decline")
    return ElicitResult(action="accept", content=content)


async def elicit_url(params: ElicitRequestURLParams) -> ElicitResult:
    """Show the address and ask before it is opened; accept is consent, not completion."""
    print(f"{params.message} {params.url}")
    return ElicitResult(action="accept")


async def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
    """Ask the model; here it is one that always says the same."""
    return CreateMessageResult(role="assistant", model="parrot", content=TextContent(text="the castle"))


async def plan(target: Any) -> str:
    async with Client(
        target, elicit=elicit, elicit_url=elicit_url, sample=sample, roots=["file:///home/aiko"]
    ) as client:
        result = await client.call_tool("plan", {"city": "Odawara"}, max_rounds=5, timeout=60)
        return "".join(block.text for block in result.content if block.type == "text")


class Day(BaseModel):
    day: int
    celsius: int


async def forecast(target: Any) -> list[Day]:
    async with Client(target) as client:
        return await client.call_tool("forecast", {"city": "Hakone", "days": 2}, result_type=list[Day])


async def begin(target: Any, order: str) -> str | None:
    """Start a call, and let go of it where it waits for an answer: the text is all that is left of it."""
    async with Client(target, elicit=elicit) as client:
        ended = await client.start_tool("refund", {"order_id": order})
        return ended.to_json() if isinstance(ended, PendingCall) else None


async def finish(target: Any, text: str, answer: dict[str, Any]) -> bool:
    """Go on with it: in another process, next morning, after the question was answered in a web page."""
    pending = PendingCall.from_json(text)
    responses = {key: {"action": "accept", "content": answer} for key in pending.requests}
    async with Client(target, elicit=elicit) as client:
        ended = await client.resume(pending, responses)
        return not isinstance(ended, PendingCall)


async def begin_prompt(target: Any, dish: str) -> str | None:
    """Start a prompt that asks; `start_resource` and `resume_resource` do the same for resources."""
    async with Client(target, elicit=elicit) as client:
        ended = await client.start_prompt("menu", {"dish": dish})
        return ended.to_json() if isinstance(ended, PendingCall) else None


async def finish_prompt(target: Any, text: str, answer: dict[str, Any]) -> str:
    pending = PendingCall.from_json(text)
    responses = {key: {"action": "accept", "content": answer} for key in pending.requests}
    async with Client(target, elicit=elicit) as client:
        ended = await client.resume_prompt(pending, responses)
        return "" if isinstance(ended, PendingCall) else str(ended.messages[0].content)


async def accept(params: ElicitRequestFormParams) -> ElicitResult:
    """Agree to everything: yes to each question, and the first of each list."""
    properties: dict[str, Any] = params.requested_schema["properties"]
    return ElicitResult(
        action="accept", content={name: field.get("enum", [True])[0] for name, field in properties.items()}
    )


async def hand_in(target: Any, order: str) -> str | None:
    """Start a call that becomes a task; the text is enough to find it again."""
    async with Client(target, elicit=accept) as client:
        ended = await client.start_tool("refund", {"order_id": order})
        while isinstance(ended, PendingCall):
            ended = await client.resume(ended)
        return ended.to_json() if isinstance(ended, TaskHandle) else None


async def collect(target: Any, text: str) -> str:
    """Wait for its end: after a restart, in another process, tomorrow."""
    async with Client(target, elicit=accept) as client:
        task = client.task(text)
        print((await task.status()).status)
        result = await task.wait(timeout=3600)
        return "".join(block.text for block in result.content if block.type == "text")


async def overheard(target: Any) -> list[str]:
    """What the server logs while it works."""
    seen: list[str] = []
    async with Client(target, on_log=lambda said: seen.append(f"{said['level']}: {said['data']}")) as client:
        await client.call_tool("bake")
    return seen


async def follow(target: Any, most: int) -> list[str]:
    """Changes as they come. A subscription that is lost is opened again."""
    seen: list[str] = []
    async with Client(target) as client:
        async for change in client.listen(tools=True, uris=("weather://Tokyo/now",)):
            seen.append(change["method"])
            if len(seen) == most:
                break
    return seen


class Bearer(httpx2.Auth):
    """Any `httpx2.Auth` will do, the official SDK's OAuth providers among them."""

    def auth_flow(self, request: httpx2.Request) -> Any:
        request.headers["authorization"] = "Bearer of-mine"
        yield request


async def signed_in(url: str) -> list[str]:
    async with Client(url, auth=Bearer()) as client:
        return [tool.name for tool in await client.list_tools()]


async def careful(url: str) -> list[str]:
    limits = ClientLimits(message_bytes=1_000_000, stream_bytes=10_000_000, state_bytes=100_000, pages=10)
    async with Client(url, limits=limits, timeout=10) as client:
        return [tool.name for tool in await client.list_tools()]


if __name__ == "__main__":
    weather = Path(__file__).parent / "weather.py"
    print(asyncio.run(forecast(["python", str(weather), "--stdio"])))
