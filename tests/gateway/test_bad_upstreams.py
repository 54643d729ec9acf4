"""Upstreams that are down, that do harm, or that take too long."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from ekiden import Client, Context, PendingCall, Server, ServerError
from ekiden.client.sessions.session import ClientRequest
from ekiden.gateway import Proxy, Upstream, connector, gateway
from ekiden.wire.modern import Request
from scripts.ports import free_port
from tests.gateway.in_front import ERAS, KEYS, elicit, in_front, listed, text, until
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


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (["a\0b"], "it cannot be reached"),
        ("http://a..b/mcp", "it cannot be reached"),
        (f"http://{'a' * 70}.example/mcp", "it cannot be reached"),
        ("http://127.0.0.1:99999/mcp", "it cannot be used"),
    ],
)
async def test_an_address_that_cannot_be_one_is_named_like_an_upstream_that_is_down(
    target: Any, why: str
) -> None:
    async with in_front(Upstream(name="odd", target=target)) as server, Client(server) as client:
        assert (await listed(client))["_meta"]["ekiden/unavailable"] == {"odd": why}
        with pytest.raises(ServerError, match=f"behind 'odd' is not available: {why}"):
            await client.call_tool("odd_tool")


@pytest.mark.parametrize("where", ["_opened", "_listen"])
async def test_a_fault_of_ours_is_logged_and_the_upstream_is_tried_again(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connector, "_FIRST_PAUSE", 0.01)
    as_it_is, calls = getattr(Proxy, where), []

    async def faulty(self: Proxy, connection: Any) -> None:
        calls.append(connection)
        if len(calls) == 1:
            raise RuntimeError("our fault")
        await as_it_is(self, connection)

    monkeypatch.setattr(Proxy, where, faulty)
    async with in_front(Upstream(name="shop", target=shop())) as server, Client(server) as client:
        await until(lambda: len(calls) > 1 and server.endpoint.registry.tools.get("shop_add") is not None)
        assert text(await client.call_tool("shop_add", {"a": 1, "b": 2})) == "3"
    assert "our fault" in caplog.text


# Upstreams that do harm

_SCHEMA = {"type": "object"}
_GOOD: dict[str, dict[str, Any]] = {
    "tools": {"name": "good", "inputSchema": _SCHEMA},
    "prompts": {"name": "good"},
    "resources": {"uri": "good://a", "name": "good"},
    "resourceTemplates": {"uriTemplate": "good://{b}", "name": "good"},
}
_MALFORMED: list[tuple[str, Any]] = [
    ("tools", {"name": "bad", "inputSchema": _SCHEMA, "title": 5}),
    ("tools", {"name": "bad", "inputSchema": _SCHEMA, "outputSchema": []}),
    ("tools", {"name": "bad", "inputSchema": _SCHEMA, "icons": "x"}),
    ("tools", {"name": "bad", "inputSchema": _SCHEMA, "annotations": {"readOnlyHint": "yes"}}),
    ("tools", {"name": "bad", "inputSchema": {"type": "string"}}),
    ("tools", {"name": "bad", "inputSchema": _SCHEMA, "description": "x" * 5_000_000}),
    ("tools", {"name": "bad"}),
    ("tools", "bad"),
    ("prompts", {"name": "bad", "arguments": {}}),
    ("prompts", {"name": "bad", "arguments": [{"name": 5}]}),
    ("prompts", {"name": "bad", "description": []}),
    ("resources", {"uri": "bad://a", "name": {}}),
    ("resources", {"uri": "bad://a", "name": "bad", "size": "large"}),
    ("resources", {"uri": "bad://a", "name": "bad", "_meta": []}),
    ("resourceTemplates", {"uriTemplate": "bad://{a}", "name": True}),
    ("resourceTemplates", {"uriTemplate": "bad://{a}"}),
]


async def test_a_malformed_definition_is_left_out_and_costs_nobody_a_list(
    caplog: pytest.LogCaptureFixture,
) -> None:
    methods = {"resourceTemplates": "resources/templates/list"}
    listed_there: dict[str, Any] = {
        "server/discover": {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        }
    }
    for what, good in _GOOD.items():
        bad = [definition for where, definition in _MALFORMED if where == what]
        listed_there[methods.get(what, f"{what}/list")] = {what: [good, *bad]}
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(served(_answering(listed_there)))
        upstreams = Upstream(name="s", target=f"{base}/mcp"), Upstream(name="shop", target=shop())
        server = await stack.enter_async_context(in_front(*upstreams))
        for mode in ERAS:
            client = await stack.enter_async_context(Client(server, mode=mode))
            seen: list[list[Any]] = [
                [tool.name for tool in await client.list_tools()],
                [prompt.name for prompt in await client.list_prompts()],
                [resource.uri for resource in await client.list_resources()],
                [template.uri_template for template in await client.list_resource_templates()],
            ]
            assert "shop_add" in seen[0]
            theirs = [[name for name in names if name.startswith(("s_", "s+"))] for names in seen]
            assert theirs == [["s_good"], ["s_good"], ["s+good://a"], ["s+good://{b}"]]
    assert caplog.text.count("is left out") == len(_MALFORMED)


def _answering(results: dict[str, Any]) -> Starlette:
    """A server of 2026 that gives these results, whatever is asked."""

    async def answer(request: StarletteRequest) -> JSONResponse:
        message = await request.json()
        result = {"resultType": "complete", **results.get(message["method"], {})}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    return Starlette(routes=[Route("/mcp", answer, methods=["POST"])])


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
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(served(_answering(results)))
        server = await stack.enter_async_context(in_front(Upstream(name="s", target=f"{base}/mcp")))
        client = await stack.enter_async_context(Client(server, elicit=elicit, roots=["file:///a"]))
        assert [tool.name for tool in await client.list_tools()] == ["s_odd"]
        with pytest.raises(ServerError, match="does not keep to the protocol"):
            await client.call_tool("s_odd")


TIMES = dict.fromkeys(("createdAt", "lastUpdatedAt"), "2026-01-01T00:00:00Z")
TASK = {"resultType": "task", "taskId": "t", "status": "working", "ttlMs": 1000, "pollIntervalMs": 5, **TIMES}


@asynccontextmanager
async def _giving(result: dict[str, Any]) -> AsyncGenerator[Server, None]:
    """A gateway in front of a server whose tool gives this result."""
    can = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    results = {
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": can},
        "tools/list": {"tools": [{"name": "odd", "inputSchema": {"type": "object"}}]},
        "tools/call": result,
        "tasks/get": {**result, "resultType": "complete"},
    }
    async with (
        served(_answering(results)) as base,
        in_front(Upstream(name="s", target=f"{base}/mcp")) as server,
    ):
        yield server


async def _call(client: Client, **capabilities: Any) -> dict[str, Any]:
    sent = ClientRequest("tools/call", {"name": "s_odd", "arguments": {}}, "s_odd")
    sent.says = {"io.modelcontextprotocol/clientCapabilities": capabilities}
    return await client._connection.exchange(sent)


async def test_a_client_that_has_not_declared_tasks_gets_none() -> None:
    async with _giving(TASK) as server, Client(server) as client, Client(server, mode="legacy") as old:
        made = await _call(client, extensions={"io.modelcontextprotocol/tasks": {}})
        assert made["resultType"] == "task"
        for one in (client, old):
            with pytest.raises(ServerError, match="behind 's' is not available: it does not keep to the pro"):
                await _call(one)


async def test_a_task_whose_id_no_client_could_send_back_is_refused() -> None:
    async with _giving({**TASK, "taskId": "a" * 1025}) as server, Client(server) as client:
        with pytest.raises(
            ServerError, match="behind 's' is not available: it does not keep to the protocol"
        ):
            await _call(client, extensions={"io.modelcontextprotocol/tasks": {}})
    async with (
        _giving({**TASK, "taskId": "a" * 1024}) as server,
        served(server) as base,
        Client(f"{base}/mcp") as client,
    ):
        made = await _call(client, extensions={"io.modelcontextprotocol/tasks": {}})
        sent = ClientRequest("tasks/get", {"taskId": made["taskId"]}, made["taskId"])
        assert (await client._connection.exchange(sent))["taskId"] == made["taskId"]


SAMPLE = {"messages": [], "maxTokens": 5, "includeContext": "thisServer"}


async def test_no_upstream_has_a_model_given_the_context_of_the_others() -> None:
    asks = {"a": {"method": "sampling/createMessage", "params": SAMPLE}}
    interim = {"resultType": "input_required", "inputRequests": asks}
    async with _giving(interim) as server, Client(server) as client:
        asked = (await _call(client, sampling={"context": {}}))["inputRequests"]
    assert list(asked.values()) == [
        {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
    ]
    upstream, told = Server("shop"), list[Any]()

    @upstream.tool
    def odd(ctx: Context[Any]) -> str:
        told.append(ctx.meta.capabilities["sampling"])
        return ""

    for era in ERAS:
        async with (
            in_front(Upstream(name="s", target=upstream, mode=era)) as server,
            Client(server) as client,
        ):
            await _call(client, sampling={"context": {}, "tools": {}})
    assert told == [{"tools": {}}, {"tools": {}}]


async def test_a_call_is_never_made_with_the_gateways_own_credential_in_place_of_its_clients() -> None:
    asked: list[tuple[str, str | None]] = []
    upstream = shop()

    async def note(request: Request, call_next: Any) -> Any:
        asked.append((request.method, request.header("authorization")))
        return await call_next(request)

    upstream.middleware(note)
    own = {"headers": {"Authorization": "Bearer own"}, "forward_headers": ("authorization",)}
    async with (
        served(upstream) as base,
        served(gateway([Upstream(name="s", target=f"{base}/mcp", **own)], keys=KEYS)) as front,
    ):
        async with Client(f"{front}/mcp") as client:
            with pytest.raises(ServerError, match="behind 's' needs the header authorization of yours"):
                await client.call_tool("s_add", {"a": 1, "b": 2})
        async with (
            httpx2.AsyncClient(headers={"Authorization": "Bearer mine"}) as http,
            Client(f"{front}/mcp", http_client=http) as client,
        ):
            assert text(await client.call_tool("s_add", {"a": 1, "b": 2})) == "3"
    assert [who for method, who in asked if method == "tools/call"] == ["Bearer mine"]


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
