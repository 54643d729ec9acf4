"""A server of 2025 in several processes that know nothing of each other, as `uvicorn --workers 2` runs it."""

import asyncio
import json
from typing import Any

import pytest
from mcp_types import ElicitResult

from ekiden import Client, Context, Server, TransportError
from tests.serving import served


def make_server() -> Server:
    server = Server("plain")

    @server.tool
    async def greet(ctx: Context) -> str:
        """Ask for a name."""
        answer = await ctx.elicit("Your name?", str)
        return f"Hello, {answer.data}"

    return server


class Balancer:
    """Has one server answer requests, and another one take the answers of the client."""

    def __init__(self) -> None:
        self._requests, self._answers = make_server().asgi(), make_server().asgi()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._requests(scope, receive, send)
            return
        event = await receive()
        assert not event.get("more_body")
        events = [event]

        async def replay() -> Any:
            return events.pop() if events else await receive()

        is_answer = "result" in json.loads(event["body"])
        await (self._answers if is_answer else self._requests)(scope, replay, send)


async def say_ann(params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": "Ann"})


async def test_a_call_whose_answer_is_not_found_ends_at_once() -> None:
    """The process that got the answer does not have the session, so the one that asked waits for ever."""
    async with (
        served(Balancer(), quiet=False) as base,
        Client(base + "/mcp", mode="legacy", elicit=say_ann) as client,
    ):
        async with asyncio.timeout(10):
            with pytest.raises(TransportError, match="several processes that do not share their sessions"):
                await client.call_tool("greet")
