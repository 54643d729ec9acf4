"""Upstreams that are down, that do harm, or that take too long."""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from ekiden import Client, Context, PendingCall, Server, ServerError
from ekiden.gateway import Upstream, connector
from scripts.ports import free_port
from tests.gateway.in_front import ERAS, KEYS, elicit, in_front, listed, text
from tests.gateway.upstreams import shop
from tests.serving import served, soon


async def test_an_upstream_that_never_starts_is_named_and_the_others_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    down = Upstream(name="down", target=["/nowhere/server"])
    silent = Upstream(name="silent", target=["sleep", "60"], start_timeout=0.2)
    async with (
        in_front(down, silent, Upstream(name="shop", target=shop())) as server,
        Client(server) as client,
    ):
        told = await listed(client)
        assert told["_meta"]["ekiden/unavailable"] == {
            "down": "it cannot be reached",
            "silent": "it did not answer in time",
        }
        assert text(await client.call_tool("shop_add", {"a": 1, "b": 2})) == "3"
    assert "down: /nowhere/server is not available: Cannot start" in caplog.text


async def test_an_upstream_that_comes_back_is_used_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "_FIRST_PAUSE", 60.0)
    monkeypatch.setattr(connector, "_SOON", 0.0)
    port = free_port()
    upstream = Upstream(name="shop", target=f"http://127.0.0.1:{port}/mcp")
    async with in_front(upstream) as server, Client(server) as client:
        assert (await listed(client))["tools"] == []
        with pytest.raises(ServerError, match="behind 'shop' is not available: it cannot be reached"):
            await client.call_tool("shop_add", {"a": 1, "b": 2})
        async with served(shop(keys=KEYS), port=port):
            assert text(await client.call_tool("shop_add", {"a": 1, "b": 2})) == "3"
            assert "ekiden/unavailable" not in (await listed(client))["_meta"]
            with pytest.raises(ServerError, match="Unknown tool: shop_nothing"):
                await client.call_tool("shop_nothing")


# Upstreams that do harm


@pytest.mark.parametrize(
    "requests",
    [
        {"a": {"method": "tools/call", "params": {}}},
        {"a": "what?"},
        {str(number): {"method": "roots/list"} for number in range(101)},
        {},
    ],
)
async def test_odd_questions_of_an_upstream_end_the_call_clearly(requests: dict[str, Any]) -> None:
    interim: dict[str, Any] = {"resultType": "input_required", "inputRequests": requests}
    results = {
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
        "tools/list": {"tools": [{"name": "odd", "inputSchema": {"type": "object"}}, {"name": 3}, "what?"]},
        "tools/call": interim,
    }

    async def odd(request: StarletteRequest) -> JSONResponse:
        message = await request.json()
        result = {"resultType": "complete", **results.get(message["method"], {})}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    application = Starlette(routes=[Route("/mcp", odd, methods=["POST"])])
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(served(application))
        server = await stack.enter_async_context(in_front(Upstream(name="s", target=f"{base}/mcp")))
        client = await stack.enter_async_context(Client(server, elicit=elicit, roots=["file:///a"]))
        assert [tool.name for tool in await client.list_tools()] == ["s_odd"]
        with pytest.raises(ServerError, match="does not keep to the protocol"):
            await client.call_tool("s_odd")


async def test_a_call_that_takes_too_long_ends_and_is_cancelled_upstream() -> None:
    upstream, cancelled = Server("slow"), asyncio.Event()

    @upstream.tool
    async def hangs() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return ""

    for era in ERAS:
        cancelled.clear()
        async with (
            in_front(Upstream(name="s", target=upstream, mode=era, timeout=0.1)) as server,
            Client(server) as client,
        ):
            with pytest.raises(ServerError, match="behind 's' is not available: it did not answer in"):
                await client.call_tool("s_hangs")
            await soon(cancelled.wait())


async def test_a_client_that_leaves_cancels_the_call_upstream() -> None:
    upstream, running, cancelled = Server("slow"), asyncio.Event(), asyncio.Event()

    @upstream.tool
    async def hangs() -> str:
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return ""

    for era in ERAS:
        async with (
            in_front(Upstream(name="s", target=upstream, mode=era)) as server,
            Client(server) as client,
        ):
            running.clear()
            cancelled.clear()
            calling = asyncio.create_task(client.call_tool("s_hangs"))
            await soon(running.wait())
            calling.cancel()
            await soon(cancelled.wait())


async def test_a_parked_call_that_is_not_answered_ends_at_the_upstream() -> None:
    upstream, ended = Server("shop"), asyncio.Event()

    @upstream.tool
    async def ask(ctx: Context[Any]) -> str:
        try:
            return (await ctx.elicit("?", bool)).action
        finally:
            ended.set()

    async with (
        in_front(Upstream(name="shop", target=upstream, mode="legacy")) as server,
        Client(server, elicit=elicit) as client,
    ):
        assert isinstance(await client.start_tool("shop_ask"), PendingCall)
        assert not ended.is_set()
    await soon(ended.wait())
