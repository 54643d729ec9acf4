"""An answer that could not be delivered is sent again: in both eras nobody else would send it."""

import asyncio
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import CallTimeout, Client, Context, Server, ServerError, StatusError, TaskHandle
from ekiden.errors import InternalError
from ekiden.stores.memory import MemoryStore
from tests.serving import PATIENCE, served
from tests.tasks.driving import QUICK


async def answer(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": "Ada"})


def failing_once(method: str, error: Exception) -> Server:
    """A server that fails the first message of a kind."""
    server = Server("failing", keys=[b"k" * 32], store=MemoryStore(), tasks=QUICK)
    failed: list[str] = []

    @server.middleware
    async def fail(request: Any, call_next: Any) -> Any:
        if method in (request.method, request.kind) and not failed:
            failed.append(method)
            raise error
        return await call_next(request)

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Name?", str)).data)

    @server.tool(task="required")
    async def work(ctx: Context) -> str:
        return str((await ctx.elicit("Name?", str)).data)

    return server


async def test_a_task_is_answered_again_by_whoever_waits_again_after_a_failure() -> None:
    server = failing_once("tasks/update", InternalError("The store is away: try again later"))
    async with (
        asyncio.timeout(PATIENCE),
        served(server) as base,
        Client(f"{base}/mcp", elicit=answer) as client,
    ):
        task = await client.start_tool("work")
        assert isinstance(task, TaskHandle)
        with pytest.raises(ServerError, match="try again later"):
            await task.wait()
        assert (await task.wait()).content[0].text == "Ada"  # type: ignore[union-attr]


async def test_a_client_of_2025_sends_its_answer_again_while_the_server_is_unavailable() -> None:
    server = failing_once("response", StatusError(503, "The store is away"))
    async with (
        asyncio.timeout(PATIENCE),
        served(server) as base,
        Client(f"{base}/mcp", elicit=answer, mode="legacy") as client,
    ):
        assert (await client.call_tool("ask")).content[0].text == "Ada"  # type: ignore[union-attr]


async def test_an_answer_that_is_refused_for_good_is_not_sent_again() -> None:
    seen: list[str] = []
    server = failing_once("nothing", ValueError())

    @server.middleware
    async def refuse(request: Any, call_next: Any) -> Any:
        if request.kind == "response":
            seen.append(request.kind)
            raise StatusError(403, "not you")
        return await call_next(request)

    async with (
        asyncio.timeout(PATIENCE),
        served(server) as base,
        Client(f"{base}/mcp", elicit=answer, mode="legacy", timeout=1.0) as client,
    ):
        with pytest.raises(CallTimeout):
            await client.call_tool("ask")
    assert seen == ["response"]
