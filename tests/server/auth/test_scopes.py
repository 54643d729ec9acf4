"""Scopes: what a caller may use, what it is shown, and how it comes by more in the middle of a call."""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from ekiden import (
    Auth,
    CacheHint,
    CallNext,
    Context,
    InsufficientScope,
    Outcome,
    Principal,
    RegistrationError,
    Request,
    Server,
    StaticTokens,
)
from ekiden.wire.tasks import EXTENSION
from tests.eras.old_client import OldClient
from tests.eras.old_client import call as old_call
from tests.requirements.marks import requirement
from tests.serving import ask, call, frames, headers_for, post, request, served

RESOURCE = "http://localhost/mcp"
METADATA = 'resource_metadata="http://localhost/.well-known/oauth-protected-resource/mcp"'
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ABLE: dict[str, Any] = {CAPABILITIES: {"elicitation": {}, "extensions": {EXTENSION: {}}}}


def token(*scopes: str) -> Principal:
    return Principal("zoe", "https://idp.example", "agent", frozenset(scopes))


TOKENS = {"none": token(), "read": token("read"), "pay": token("pay"), "both": token("read", "pay")}


def auth(**options: Any) -> Auth:
    return Auth(RESOURCE, issuer="https://idp.example", verifier=StaticTokens(TOKENS), **options)


class Confirm(BaseModel):
    ok: bool


ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


async def effect(what: str) -> str:
    ran.append(what)
    return what


def library(**options: Any) -> Server:
    server = Server(
        "library", auth=auth(), store="memory:", cache={"tools/list": CacheHint(1000, "public")}, **options
    )

    @server.tool
    async def search() -> str:
        return "found"

    @server.tool(scopes=["pay", "read"])
    async def buy() -> str:
        ran.append("bought")
        return "bought"

    @server.tool(scopes=["pay"], task="required")
    async def ship(ctx: Context) -> str:
        await ctx.elicit("Really?", Confirm)
        return "shipped"

    @server.prompt(scopes=["read"])
    async def summary(topic: str) -> str:
        return topic

    @server.completion(prompt="summary", argument="topic")
    async def topics(value: str) -> list[str]:
        return ["secret topic"]

    @server.resource("book://secret", scopes=["read"])
    async def secret() -> str:
        return "secret"

    @server.resource("book://{name}", scopes=["read"])
    async def book(name: str) -> str:
        return name

    @server.resource("book://open")
    async def open_book() -> str:
        return "open"

    return server


async def names(base: str, who: str, method: str, field: str) -> list[str]:
    answer = (await post(base, request(method), authorization=f"Bearer {who}")).json()["result"]
    assert answer["cacheScope"] == "private"
    return [each.get("uri") or each.get("uriTemplate") or each["name"] for each in answer[field]]


async def test_a_list_shows_what_its_caller_may_use() -> None:
    async with served(library()) as base:
        for _ in range(2):
            seen = {who: await names(base, who, "tools/list", "tools") for who in TOKENS}
            assert seen == {
                "none": ["search"],
                "read": ["search"],
                "pay": ["search", "ship"],
                "both": ["search", "buy", "ship"],
            }
        assert await names(base, "none", "prompts/list", "prompts") == []
        assert await names(base, "read", "prompts/list", "prompts") == ["summary"]
        assert await names(base, "none", "resources/list", "resources") == ["book://open"]
        assert await names(base, "read", "resources/list", "resources") == ["book://secret", "book://open"]
        assert await names(base, "none", "resources/templates/list", "resourceTemplates") == []
        async with httpx2.AsyncClient(trust_env=False) as http:
            old = OldClient(base, http)
            old.more = {"authorization": "Bearer pay"}
            await old.open()
            listed = (await old.ask("tools/list"))["result"]["tools"]
            assert [tool["name"] for tool in listed] == ["search", "ship"]


@requirement("AUTH-09", "AUTH-10")
@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_what_one_may_not_use_is_refused_with_all_that_it_needs(mounted: bool) -> None:
    completion = {
        "ref": {"type": "ref/prompt", "name": "summary"},
        "argument": {"name": "topic", "value": ""},
    }
    asked = {
        "pay read": [call("buy")],
        "read": [
            request("prompts/get", {"name": "summary", "arguments": {"topic": "x"}}),
            request("resources/read", {"uri": "book://secret"}),
            request("resources/read", {"uri": "book://other"}),
            request("completion/complete", completion),
        ],
    }
    async with served(library(), mounted=mounted) as base, httpx2.AsyncClient(trust_env=False) as http:
        for scopes, messages in asked.items():
            for message in messages:
                answer = await post(base, message, authorization="Bearer none")
                assert answer.status_code == 403
                challenge = f'Bearer error="insufficient_scope", scope="{scopes}", {METADATA}'
                assert answer.headers["www-authenticate"] == challenge
                assert answer.json()["id"] == 1
                assert (await post(base, message, authorization="Bearer both")).status_code == 200
        old = OldClient(base, http)
        old.more = {"authorization": "Bearer none"}
        await old.open()
        answers = [
            await old.send(old_call("buy")),
            await old.send(
                {"jsonrpc": "2.0", "id": 7, "method": "resources/subscribe", "params": {"uri": "book://a"}}
            ),
        ]
        assert [answer.status_code for answer in answers] == [403, 403]
        assert 'scope="pay read"' in answers[0].headers["www-authenticate"]
    assert ran == ["bought"]


async def test_the_challenge_also_names_what_every_request_needs() -> None:
    server = Server("s", auth=auth(scopes=["read"]))

    @server.tool(scopes=["pay"])
    async def buy() -> str:
        return "bought"

    async with served(server) as base:
        answer = await post(base, call("buy"), authorization="Bearer read")
    assert 'scope="read pay"' in answer.headers["www-authenticate"]


async def test_a_task_needs_the_scopes_of_its_tool() -> None:
    async with served(library(keys=[b"k" * 32])) as base:
        message = request("tools/call", {"name": "ship", "arguments": {}}, **ABLE)
        created = (await post(base, message, authorization="Bearer pay")).json()["result"]
        look = request("tasks/get", {"taskId": created["taskId"]}, **ABLE)
        refused = await post(base, look, authorization="Bearer none", mcp_name=created["taskId"])
        seen = await post(base, look, authorization="Bearer both", mcp_name=created["taskId"])
    assert (refused.status_code, seen.status_code) == (403, 200)


async def test_a_subscription_leaves_out_what_its_caller_may_not_read() -> None:
    wanted = {"resourceSubscriptions": ["book://secret", "book://x", "book://open"]}
    message = request("subscriptions/listen", {"notifications": wanted})
    async with served(library()) as base, httpx2.AsyncClient(trust_env=False) as http:
        headers = {**headers_for(message), "authorization": "Bearer none"}
        async with http.stream("POST", base + "/mcp", json=message, headers=headers) as stream:
            text = ""
            async for chunk in stream.aiter_text():
                text += chunk
                if "\n\n" in text:
                    break
    (acknowledged,) = frames(text)
    assert "book://open" in acknowledged
    assert "book://secret" not in acknowledged
    assert "book://x" not in acknowledged


async def test_without_http_it_is_an_error_in_words() -> None:
    server = library()
    refused = (await ask(server, "tools/call", {"name": "buy", "arguments": {}}))["error"]
    assert refused == {"code": -32600, "message": "Insufficient scope: this needs pay read"}
    async with server.connect(principal=token("pay", "read")) as channel:
        await channel.send(call("buy"))
        assert (await channel.receive())["result"]["content"][0]["text"] == "bought"


def test_scopes_need_somebody_who_grants_them() -> None:
    server = Server("open")
    with pytest.raises(RegistrationError, match="auth="):
        server.tool(scopes=["pay"])(effect)


async def test_a_middleware_that_wants_a_scope_is_answered_like_a_tool() -> None:
    server = Server("s", auth=auth())

    @server.middleware
    async def only_payers(request: Request, call_next: CallNext) -> Outcome:
        if request.principal is None or not request.principal.has("pay"):
            raise InsufficientScope(["pay"])
        return await call_next(request)

    async with served(server) as base:
        answer = await post(base, request("server/discover"), authorization="Bearer none")
        assert answer.status_code == 403
        assert 'error="insufficient_scope", scope="pay"' in answer.headers["www-authenticate"]
        assert (await post(base, request("server/discover"), authorization="Bearer pay")).status_code == 200


# Stepping up in the middle of a call


def steps_up(**options: Any) -> Server:
    server = Server("shop", auth=auth(), keys=[b"k" * 32], **options)
    once: Any = {"once": True} if "store" in options else {}

    @server.tool
    async def at_once(ctx: Context) -> str:
        await ctx.require_scope("pay")
        await ctx.step(effect, "paid")
        return "done"

    @server.tool(**once)
    async def after_a_step(ctx: Context) -> str:
        await ctx.step(effect, "reserved")
        await ctx.require_scope("pay")
        await ctx.step(effect, "paid")
        return "done"

    @server.tool(**once)
    async def after_an_answer(ctx: Context) -> str:
        answer = await ctx.elicit("Really?", Confirm)
        await ctx.step(effect, "reserved")
        await ctx.require_scope("pay")
        await ctx.step(effect, "paid")
        return answer.action

    @server.tool
    async def beside_others(ctx: Context) -> str:
        async def pay() -> str:
            await ctx.step(effect, "a")
            await ctx.require_scope("pay")
            return await ctx.step(effect, "paid")

        async def read() -> str:
            answer = await ctx.elicit("Really?", Confirm)
            await ctx.require_scope("read")
            await ctx.step(effect, "b")
            return answer.action

        return " ".join(await asyncio.gather(pay(), read()))

    @server.tool
    async def says_so(ctx: Context) -> str:
        await ctx.progress(1, message="looking")
        await ctx.require_scope("pay")
        return "done"

    @server.tool(task="deferred") if "store" in options else server.tool
    async def too_late(ctx: Context) -> str:
        await ctx.background()
        await ctx.require_scope("pay")
        return "done"

    return server


class Caller:
    """Calls as a client does: comes back with the state and answers, and repeats what is refused."""

    def __init__(self, base: str, tool: str, **meta: Any) -> None:
        self.base = base
        self.params: dict[str, Any] = {"name": tool, "arguments": {}}
        self.meta = {**ABLE, **meta}
        self.statuses: list[int] = []

    async def send(self, who: str) -> httpx2.Response:
        message = request("tools/call", self.params, **self.meta)
        answer = await post(self.base, message, authorization=f"Bearer {who}")
        self.statuses.append(answer.status_code)
        return answer

    async def go_on(self, who: str) -> Any:
        """Up to the final result, or to a refusal."""
        for _ in range(10):
            answer = await self.send(who)
            if answer.headers["content-type"] == "text/event-stream":
                (last,) = [frame for frame in frames(answer.text) if '"id":1' in frame]
                said = json.loads(last.partition("data: ")[2])
            else:
                said = answer.json()
            result = said.get("result", {})
            if result.get("resultType") != "input_required":
                return said
            asked = result.get("inputRequests", {})
            self.params["requestState"] = result["requestState"]
            self.params["inputResponses"] = {
                key: {"action": "accept", "content": {"ok": True}} for key in asked
            }
        raise AssertionError("the call does not end")


STORES = pytest.mark.parametrize("options", [{}, {"store": "memory:"}], ids=["no store", "once"])


@STORES
@pytest.mark.parametrize(
    ("tool", "reserved", "rounds"),
    [
        ("at_once", [], [403]),
        ("after_a_step", ["reserved"], [200, 403]),
        ("after_an_answer", ["reserved"], [200, 200, 403]),
    ],
)
async def test_a_call_goes_on_where_it_lacked_a_scope(
    options: dict[str, Any], tool: str, reserved: list[str], rounds: list[int]
) -> None:
    async with served(steps_up(**options)) as base:
        caller = Caller(base, tool)
        refused = await caller.go_on("read")
        assert refused["error"]["message"] == "Insufficient scope: this needs pay"
        assert caller.statuses == rounds
        assert ran == reserved
        # A client that tries again with the same token is told the same, and nothing runs meanwhile.
        again = await caller.send("read")
        assert (again.status_code, ran) == (403, reserved)
        assert 'error="insufficient_scope", scope="pay"' in again.headers["www-authenticate"]
        done = await caller.go_on("both")
        assert done["result"]["content"][0]["text"] in ("done", "accept")
        assert ran == [*reserved, "paid"]


async def test_branches_wait_for_their_scopes_together() -> None:
    async with served(steps_up()) as base:
        caller = Caller(base, "beside_others")
        refused = await caller.go_on("none")
        # One challenge for all that is missing, after the question was answered and the step was kept.
        assert refused["error"]["message"] == "Insufficient scope: this needs pay read"
        assert ran == ["a"]
        half = await caller.go_on("read")
        assert half["error"]["message"] == "Insufficient scope: this needs pay"
        assert ran == ["a", "b"]
        done = await caller.go_on("both")
        assert done["result"]["content"][0]["text"] == "paid accept"
        assert sorted(ran) == ["a", "b", "paid"]


async def test_a_response_that_streams_ends_before_the_call_is_refused() -> None:
    async with served(steps_up()) as base:
        caller = Caller(base, "says_so", progressToken="p")
        refused = await caller.go_on("none")
        assert refused["error"]["message"] == "Insufficient scope: this needs pay"
        assert caller.statuses == [200, 403]
        assert (await caller.go_on("pay"))["result"]["content"][0]["text"] == "done"


async def test_a_better_token_that_is_lost_again_is_asked_for_again() -> None:
    async with served(steps_up()) as base:
        caller = Caller(base, "after_a_step")
        await caller.go_on("none")
        assert (await caller.go_on("none"))["error"]["code"] == -32600
        assert ran == ["reserved"]


async def test_in_a_task_it_is_too_late_to_ask_for_more() -> None:
    async with served(steps_up(store="memory:")) as base:
        created = (await Caller(base, "too_late").go_on("none"))["result"]
        look = request("tasks/get", {"taskId": created["taskId"]}, **ABLE)
        async with asyncio.timeout(10):
            while True:
                answer = await post(base, look, authorization="Bearer none", mcp_name=created["taskId"])
                task = answer.json()["result"]
                if task["status"] not in ("working", "submitted"):
                    break
                await asyncio.sleep(0.01)
    assert task["status"] == "failed"
    assert task["error"]["message"] == "Insufficient scope: this needs pay"


async def test_a_client_of_2025_is_refused_only_before_anything_has_run() -> None:
    async with served(steps_up()) as base, httpx2.AsyncClient(trust_env=False) as http:
        old = OldClient(base, http)
        old.more = {"authorization": "Bearer none"}
        await old.open()
        refused = await old.send(old_call("at_once"))
        assert (refused.status_code, ran) == (403, [])
        told = (await old.send(old_call("after_a_step"))).json()["result"]
        assert told["isError"] is True
        assert "pay" in told["content"][0]["text"]
        assert ran == ["reserved"]
        old.more = {"authorization": "Bearer pay"}
        assert (await old.send(old_call("at_once"))).json()["result"]["content"][0]["text"] == "done"


async def test_without_http_a_call_that_lacks_a_scope_ends_in_words() -> None:
    refused = (await ask(steps_up(), "tools/call", {"name": "at_once", "arguments": {}}))["error"]
    assert refused["message"] == "Insufficient scope: this needs pay"
