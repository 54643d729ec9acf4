"""A result that is too large is not sent and not kept: an error says so, in every era and transport."""

import asyncio
from typing import Any

import httpx2
import pytest

from ekiden import Client, Context, Server, ServerError
from ekiden.stores.memory import MemoryStore
from tests.acceptance.driving import Client as Rounds
from tests.acceptance.driving import accept, only
from tests.eras.old_client import call as old_call
from tests.eras.old_client import old_client
from tests.serving import PATIENCE, ask, call, headers_for, served
from tests.tasks.driving import QUICK, TaskClient

MOST = 10_000
LARGE = 500_000


def large(**options: Any) -> Server:
    server = Server("large", keys=[b"k" * 32], store=MemoryStore(), tasks=QUICK, **options)

    @server.tool
    async def much(size: int) -> str:
        return "x" * size

    @server.tool
    async def after_a_step(size: int, ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        await ctx.step(len, "once")
        return "x" * size

    @server.tool(task="required")
    async def later(size: int) -> str:
        return "x" * size

    @server.resource("a://{size}")
    async def page(size: int) -> str:
        return "x" * size

    return server


def says_so(error: dict[str, Any]) -> None:
    assert error["code"] == -32603
    assert error["message"].startswith("The result is too large: 50")
    assert error["message"].endswith(f"at most {MOST} are allowed. Ask for less of it at a time")


async def test_in_memory_and_for_resources_too() -> None:
    server = large(result_bytes=MOST)
    says_so((await ask(server, "tools/call", {"name": "much", "arguments": {"size": LARGE}}))["error"])
    says_so((await ask(server, "resources/read", {"uri": f"a://{LARGE}"}))["error"])
    fits = await ask(server, "tools/call", {"name": "much", "arguments": {"size": MOST // 2}})
    assert len(fits["result"]["content"][0]["text"]) == MOST // 2


async def test_over_http_in_both_eras() -> None:
    async with served(large(result_bytes=MOST)) as base:
        async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
            message = call("much", {"size": LARGE})
            response = await client.post(f"{base}/mcp", json=message, headers=headers_for(message))
            says_so(response.json()["error"])
        async with old_client(base) as old:
            says_so((await old.answered(old_call("much", size=LARGE)))["error"])


async def test_a_round_that_is_remembered_remembers_the_error() -> None:
    client = Rounds(large(result_bytes=MOST))
    asked = await client.ask("after_a_step", {"size": LARGE})
    again = {"inputResponses": {only(asked): accept(True)}, "requestState": asked.state}
    texts = [str(await client.refused("after_a_step", {"size": LARGE}, **again)) for _ in range(2)]
    assert texts[0] == texts[1]
    assert "too large" in texts[0]


async def test_a_task_fails_and_its_row_stays_small() -> None:
    async with (server := large(result_bytes=MOST)).running():
        client = TaskClient(server)
        task = await client.until(await client.start("later", {"size": LARGE}), "failed")
        says_so(task["error"])


async def test_a_hundred_megabytes_cost_an_error_by_default() -> None:
    size = 100_000_000
    async with asyncio.timeout(60), served(large()) as base, Client(f"{base}/mcp", timeout=60) as client:
        with pytest.raises(ServerError, match="The result is too large: 1000"):
            await client.call_tool("much", {"size": size})
        assert (await client.call_tool("much", {"size": 3})).content[0].text == "x" * 3
