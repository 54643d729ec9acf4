"""`ctx.elicit(meta=...)`: the `_meta` of a question (SEP-3118 names the page there that shows it)."""

import asyncio
import datetime as dt
import secrets
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client, Context, Server
from ekiden.stores.memory import MemoryStore
from ekiden.testing import ScriptedClient

KEYS = [secrets.token_bytes(32)]


def asking(meta: Any, server: Server | None = None, **options: Any) -> Server:
    """A server whose tool asks one question with this `_meta`."""
    server = server or Server("s", keys=KEYS)

    @server.tool(**options)
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("How many?", int, meta=meta)
        return repr(answer)

    return server


def pages(version: int) -> dict[str, Any]:
    return {"ui": {"resourceUri": f"ui://shop/amount?v={version}"}}


async def test_a_question_is_sent_with_its_meta() -> None:
    client = ScriptedClient(asking(pages(1)), {"How many?": 3})
    result = await client.call_tool("ask")
    (question,) = client.rounds[0].requests.values()
    assert question["params"]["_meta"] == pages(1)
    assert "data=3" in result["content"][0]["text"]


async def test_an_answer_counts_although_the_meta_has_changed_since() -> None:
    servers = [asking(pages(version)) for version in (1, 2)]
    client = ScriptedClient(lambda: servers.pop(0), {"How many?": 3})
    await client.call_tool("ask")
    assert [len(seen.requests) for seen in client.rounds] == [1, 0]


async def test_two_questions_that_differ_in_meta_only_do_not_share_it() -> None:
    server = Server("s", keys=KEYS)

    @server.tool
    async def both(ctx: Context) -> str:
        first, second = await asyncio.gather(
            ctx.elicit("How many?", int, key="a", meta=pages(1)), ctx.elicit("How many?", int, key="b")
        )
        return repr((first, second))

    client = ScriptedClient(server, {"a": 1, "b": 2})
    await client.call_tool("both")
    asked = client.rounds[0].requests
    assert [asked[key]["params"].get("_meta") for key in ("a", "b")] == [pages(1), None]


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_the_callback_of_a_client_of_either_era_sees_it(mode: Any) -> None:
    seen: list[Any] = []

    async def elicit(params: ElicitRequestFormParams) -> ElicitResult:
        seen.append(params.meta)
        return ElicitResult(action="accept", content={"value": 3})

    async with Client(asking(pages(1)), elicit=elicit, mode=mode) as client:
        await client.call_tool("ask")
    assert [meta["ui"] for meta in seen] == [pages(1)["ui"]]


async def test_a_task_asks_with_it() -> None:
    server = asking(pages(1), Server("s", keys=KEYS, store=MemoryStore()), task="required")
    client = ScriptedClient(server, {"How many?": 3}, tasks=True)
    await client.call_tool("ask")
    asked = [status["inputRequests"] for status in client.statuses if status.get("inputRequests")]
    (question,) = asked[0].values()
    assert question["params"]["_meta"] == pages(1)


@pytest.mark.parametrize("meta", [{"at": dt.date}, {"n": object()}, {1: float}])
async def test_a_meta_that_is_not_json_is_the_authors_error(
    meta: Any, caplog: pytest.LogCaptureFixture
) -> None:
    result = await ScriptedClient(asking(meta)).call_tool("ask")
    assert result["isError"]
    assert "meta= must be a JSON object" in caplog.text
