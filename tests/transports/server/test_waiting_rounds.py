"""What a mounted round holds while it waits for its handler: the garbage collector looks at all of that.

Python 3.11 begins a task in the next pass of the loop, so rounds that come together wait together. At 700
new objects the collector looks at them, and finds nothing: with 44 for each round, 16 rounds are enough.
"""

import asyncio
import gc
import json
from collections.abc import MutableMapping
from typing import Any, Final

import pytest

from ekiden import Context, Server
from tests.serving import call, headers_for

TOGETHER: Final = 16
MOST: Final = 38
"""Whoever serves the application holds a few for each request, too."""
ELICITS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}

server = Server("waiting", keys=[b"a key that is used for nothing else at all"])
application = server.asgi()


@server.tool
async def confirm(ctx: Context) -> str:
    return (await ctx.elicit("Sure?", bool)).action


class Exchange:
    """One request to the application, and what it answers."""

    def __init__(self, message: dict[str, Any]) -> None:
        self._body = json.dumps(message).encode()
        headers = [(name.encode(), value.encode()) for name, value in headers_for(message).items()]
        self._scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": [(b"host", b"localhost"), *headers],
            "client": ("127.0.0.1", 1),
        }
        self.answered = b""

    async def run(self) -> None:
        await application(self._scope, self._receive, self._send)

    async def _receive(self) -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, event: MutableMapping[str, Any]) -> None:
        self.answered += event.get("body", b"")


async def result_of(message: dict[str, Any]) -> dict[str, Any]:
    exchange = Exchange(message)
    await exchange.run()
    result: dict[str, Any] = json.loads(exchange.answered)["result"]
    return result


async def the_answer() -> dict[str, Any]:
    """The round that answers the first."""
    asked = await result_of(call("confirm", **ELICITS))
    message = call("confirm", **ELICITS)
    (key,) = asked["inputRequests"]
    message["params"]["inputResponses"] = {key: {"action": "accept", "content": {"value": True}}}
    message["params"]["requestState"] = asked["requestState"]
    return message


@pytest.mark.parametrize("brings_answer", [False, True])
async def test_rounds_that_wait_for_their_handlers_hold_few_objects(brings_answer: bool) -> None:
    message = await the_answer() if brings_answer else call("confirm", **ELICITS)
    async with server.running():
        for _ in range(3):
            exchanges = [Exchange(message) for _ in range(TOGETHER)]
            gc.disable()
            try:
                tasks = [asyncio.create_task(exchange.run()) for exchange in exchanges]
                before = gc.get_count()[0]
                await asyncio.sleep(0)
                held = gc.get_count()[0] - before
                await asyncio.gather(*tasks)
            finally:
                gc.enable()
            assert all(b'"result"' in exchange.answered for exchange in exchanges)
    assert held <= MOST * TOGETHER
