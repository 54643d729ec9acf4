"""Every way to a task, tried by its owner with a token that grants less than the task's tool needs.

The ways are read from the methods of the protocol, so that a new one without a check fails here.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest
from mcp_types import ReadResourceResult, TextResourceContents

from ekiden import Auth, CacheHint, Context, Principal, Server, StaticTokens
from ekiden.extensions import Skills
from ekiden.wire.tasks import EXTENSION, LEGACY_METHODS, LIST_METHOD, METHODS
from tests.eras.old_client import OldClient, raw_client
from tests.eras.old_client import events as events_of
from tests.serving import events, headers_for, post, request, served, soon

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ABLE: dict[str, Any] = {CAPABILITIES: {"extensions": {EXTENSION: {}}}}
SECRET = "the balance is 4711"


def _token(*scopes: str) -> Principal:
    return Principal("zoe", "https://idp.example", "agent", frozenset(scopes))


TOKENS = {"full": _token("audit"), "lesser": _token("read")}


def _bank(*, mounted: bool) -> Server:
    auth = Auth("http://localhost/mcp", verifier=StaticTokens(TOKENS))
    outer = Server("outer", auth=auth, store="memory:", keys=[b"k" * 32])
    bank = Server("bank", auth=auth, store="memory:", keys=[b"k" * 32]) if mounted else outer

    @bank.tool(scopes=["audit"], task="required")
    async def balance(ctx: Context) -> str:
        return SECRET

    @bank.tool(task="required")
    async def news(ctx: Context) -> str:
        return "none"

    if mounted:
        outer.mount(bank)
    return outer


@pytest.fixture(params=["alone", "mounted"])
async def base(request: pytest.FixtureRequest) -> AsyncGenerator[str, None]:
    async with served(_bank(mounted=request.param == "mounted")) as url:
        yield url


async def _created(base: str, tool: str) -> str:
    message = request("tools/call", {"name": tool, "arguments": {}}, **ABLE)
    answer = (await post(base, message, authorization="Bearer full")).json()
    task_id: str = answer["result"]["taskId"]
    async with asyncio.timeout(10):
        while (await _asked(base, "full", "tasks/get", task_id)).json()["result"]["status"] == "working":
            await asyncio.sleep(0.01)
    return task_id


async def _asked(base: str, who: str, method: str, task_id: str) -> httpx2.Response:
    params: dict[str, Any] = {"taskId": task_id, "inputResponses": {}}
    return await post(base, request(method, params, **ABLE), authorization=f"Bearer {who}", mcp_name=task_id)


async def _listened(base: str, who: str, *task_ids: str) -> str:
    """What a subscription to tasks says until there is nothing more to say at once."""
    message = request("subscriptions/listen", {"notifications": {"taskIds": list(task_ids)}}, **ABLE)
    headers = {**headers_for(message), "authorization": f"Bearer {who}"}
    text = ""
    async with httpx2.AsyncClient(trust_env=False) as http:
        with_all = http.stream("POST", base + "/mcp", json=message, headers=headers)
        async with with_all as stream:
            chunks = aiter(stream.aiter_text())
            text = await soon(anext(chunks))
            granted = events(text)[0]["params"]["notifications"].get("taskIds", [])
            while len(events(text)) <= len(granted):
                text += await soon(anext(chunks))
    return text


async def test_no_method_of_2026_shows_a_task_whose_tool_needs_more(base: str) -> None:
    task_id = await _created(base, "balance")
    answers = {method: await _asked(base, "lesser", method, task_id) for method in METHODS}
    assert {method: answer.status_code for method, answer in answers.items()} == dict.fromkeys(METHODS, 403)
    assert not any(SECRET in answer.text for answer in answers.values())
    assert SECRET in (await _asked(base, "full", "tasks/get", task_id)).text


async def test_a_subscription_tells_nothing_of_a_task_whose_tool_needs_more(base: str) -> None:
    secret, open_ = await _created(base, "balance"), await _created(base, "news")
    lesser = await _listened(base, "lesser", secret, open_)
    assert open_ in lesser
    assert secret not in lesser
    assert SECRET not in lesser
    assert SECRET in await _listened(base, "full", secret, open_)


async def test_no_method_of_2025_shows_a_task_whose_tool_needs_more() -> None:
    async with served(_bank(mounted=False)) as base, httpx2.AsyncClient(trust_env=False) as http:
        old = OldClient(base, http)
        old.more = {"authorization": "Bearer full"}
        await old.open()
        made = [
            (await old.ask("tools/call", {"name": tool, "arguments": {}, "task": {}}))["result"]["task"][
                "taskId"
            ]
            for tool in ("balance", "news")
        ]
        for task_id in made:
            await soon(old.ask("tasks/result", {"taskId": task_id}))
        old.more = {"authorization": "Bearer lesser"}
        for method in LEGACY_METHODS:
            message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"taskId": made[0]}}
            answer = await old.send(message)
            assert (method, answer.status_code, SECRET in answer.text) == (method, 403, False)
        listed = (await old.ask(LIST_METHOD))["result"]["tasks"]
        assert [task["taskId"] for task in listed] == [made[1]]
        old.more = {"authorization": "Bearer full"}
        assert len((await old.ask(LIST_METHOD))["result"]["tasks"]) == 2


async def test_the_stream_of_a_session_tells_nothing_that_its_token_may_not_see() -> None:
    is_over = asyncio.Event()
    auth = Auth("http://localhost/mcp", verifier=StaticTokens(TOKENS))
    server = Server("bank", auth=auth, store="memory:", keys=[b"k" * 32])

    async def told(ctx: Context) -> str:
        await ctx.progress(1, message=SECRET)
        await is_over.wait()
        return SECRET

    async def read() -> str:
        return SECRET

    for name, needed in (("balance", {"scopes": ["audit"]}), ("news", {})):
        options: dict[str, Any] = {"name": name, **needed}
        server.add_tool(told, task="required", **options)
        server.add_resource(f"bank://{name}", read, **options)
    async with served(server) as base, raw_client(base) as old:
        old.more = {"authorization": "Bearer full"}
        await old.open()
        ids: list[str] = []
        for name in ("balance", "news"):
            await old.ask("resources/subscribe", {"uri": f"bank://{name}"})
            made = await old.ask("tools/call", {"name": name, "arguments": {}, "task": {}})
            ids.append(made["result"]["task"]["taskId"])
        seen: dict[str, str] = {}
        for who, last in (("lesser", "completed"), ("full", "bank://balance")):
            seen[who], old.more = "", {"authorization": f"Bearer {who}"}
            async with asyncio.timeout(60), old.listening() as response:
                for name in ("balance", "news"):
                    server.resource_updated(f"bank://{name}")
                is_over.set()
                async for event in events_of(response):
                    seen[who] += str(event.message)
                    if "bank://news" in seen[who] and last in seen[who]:
                        break
    assert "bank://balance" not in seen["lesser"]
    assert ids[0] not in seen["lesser"]
    assert ids[1] in seen["lesser"]


async def test_nobody_may_keep_for_others_what_only_some_may_see() -> None:
    auth = Auth("http://localhost/mcp", verifier=StaticTokens(TOKENS))
    shared = CacheHint(1000, "public")
    skills = Skills(cache=shared, scopes=["audit"])
    skills.add("books", description="About books.", instructions="Read them.")
    lists = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
    server = Server("s", auth=auth, cache=dict.fromkeys(lists, shared), extensions=[skills])

    @server.tool(scopes=["audit"])
    async def tool() -> str:
        return SECRET

    @server.prompt(scopes=["audit"])
    async def prompt() -> str:
        return SECRET

    @server.resource("bank://balance", scopes=["audit"], cache=shared)
    async def plain() -> str:
        return SECRET

    @server.resource("bank://{account}", scopes=["audit"], cache=shared)
    async def exact(account: str) -> ReadResourceResult:
        contents = TextResourceContents(uri=f"bank://{account}", text=SECRET)
        return ReadResourceResult(contents=[contents], ttl_ms=5000, cache_scope="public")

    able = {CAPABILITIES: {"extensions": {"io.modelcontextprotocol/skills": {}}}}
    asked = [
        *(request(method) for method in lists),
        *(
            request("resources/read", {"uri": uri})
            for uri in ("bank://balance", "bank://7", "skill://books/SKILL.md")
        ),
        request("skills/list", **able),
        request("skills/get", {"uri": "skill://books/SKILL.md"}, **able),
    ]
    async with served(server) as base:
        for message in asked:
            answer = await post(base, message, authorization="Bearer full")
            said = answer.json()
            assert (message["method"], said["result"]["cacheScope"]) == (message["method"], "private"), said
