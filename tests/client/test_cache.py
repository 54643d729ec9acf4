"""Results that a server allows to be kept: for so long, so many, and never those of a retry."""

import asyncio
from typing import Any

from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client
from ekiden.client.cache import ResultCache
from tests.hostile.evil import STREAM, answers, evil

from .test_rounds import form, interim

TOOLS = {"resultType": "complete", "tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
READ = {"resultType": "complete", "contents": [{"uri": "a://b", "text": "content"}]}


def methods(server: Any) -> list[str]:
    return [message["method"] for message in server.messages if message["method"] != "server/discover"]


async def test_a_list_is_kept_as_long_as_the_server_says_and_for_one_client_only() -> None:
    kept = {**TOOLS, "ttlMs": 60_000, "cacheScope": "public"}
    async with evil({"tools/list": answers(kept)}) as server:
        for times in (1, 2):
            async with Client(server.url) as client:
                assert await client.list_tools() == await client.list_tools()
            assert len(methods(server)) == times, "another client is perhaps another principal"
    for ttl in ({}, {"ttlMs": 0}, {"ttlMs": -5}, {"ttlMs": "long"}):
        async with evil({"tools/list": answers({**TOOLS, **ttl})}) as server, Client(server.url) as client:
            await client.list_tools()
            await client.list_tools()
            assert len(methods(server)) == 2


async def test_what_is_kept_cannot_be_changed_by_who_got_it() -> None:
    async with (
        evil({"tools/list": answers({**TOOLS, "ttlMs": 60_000})}) as server,
        Client(server.url) as client,
    ):
        (tool,) = await client.list_tools()
        tool.input_schema["type"] = "changed"
        (again,) = await client.list_tools()
        assert again.input_schema == {"type": "object"}


async def test_a_read_is_kept_but_a_call_never() -> None:
    kept = {"ttlMs": 60_000}
    deeds = {"resources/read": answers({**READ, **kept}), "deed": answers({"content": [], **kept})}
    async with evil(deeds) as server, Client(server.url) as client:
        for _ in range(2):
            await client.read_resource("a://b")
            await client.call_tool("deed")
        await client.read_resource("a://c")
        assert methods(server) == ["resources/read", "tools/call", "tools/call", "resources/read"]


async def test_the_result_of_a_retry_is_never_kept() -> None:
    async def agree(params: ElicitRequestFormParams) -> ElicitResult:
        return ElicitResult(action="accept", content={})

    async def deed(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        retried = "inputResponses" in message["params"]
        result = {**READ, "ttlMs": 60_000} if retried else {**interim({"k": form("?")}), "ttlMs": 60_000}
        await answers(result)(writer, message)

    async with evil({"resources/read": deed}) as server, Client(server.url, elicit=agree) as client:
        await client.read_resource("a://b")
        await client.read_resource("a://b")
        assert len(methods(server)) == 4


async def test_a_change_that_is_told_ends_what_was_kept() -> None:
    import json

    async def tell(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        writer.write(STREAM)
        changes: list[dict[str, Any]] = [
            {"method": "notifications/tools/list_changed"},
            {"method": "notifications/resources/updated", "params": {"uri": "a://b"}},
            {"id": message["id"], "result": {"content": []}},
        ]
        for change in changes:
            writer.write(b"data: " + json.dumps({"jsonrpc": "2.0", **change}).encode() + b"\n\n")
        await writer.drain()
        writer.close()

    deeds = {
        "tools/list": answers({**TOOLS, "ttlMs": 60_000}),
        "resources/read": answers({**READ, "ttlMs": 60_000}),
        "tell": tell,
    }
    async with evil(deeds) as server, Client(server.url) as client:
        for _ in range(2):
            await client.list_tools()
            await client.read_resource("a://b")
            await client.read_resource("a://c")
            await client.call_tool("tell")
        first = ["tools/list", "resources/read", "resources/read", "tools/call"]
        assert methods(server) == [*first, "tools/list", "resources/read", "tools/call"]


def test_results_are_kept_by_number_by_size_and_by_the_clock() -> None:
    now = 0.0
    cache = ResultCache(clock=lambda: now)
    for number in range(300):
        cache.put("resources/read", {"uri": str(number)}, {"ttlMs": 1000, "n": number})
    assert cache.get("resources/read", {"uri": "0"}) is None
    assert cache.get("resources/read", {"uri": "299"}) == {"ttlMs": 1000, "n": 299}
    large = {"ttlMs": 10**15, "text": "x" * 30_000_000}
    for uri in ("a", "b", "c"):
        cache.put("resources/read", {"uri": uri}, large)
    assert [cache.get("resources/read", {"uri": uri}) is None for uri in ("299", "a", "b", "c")] == [
        True,
        True,
        False,
        False,
    ]
    now = 24 * 3600.0 + 1
    assert cache.get("resources/read", {"uri": "c"}) is None, "a day is the longest"
