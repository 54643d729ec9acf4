"""What belongs to one identity does not exist for another: attacks with a token that was swapped."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from ekiden import Auth, Context, Principal, RoundLimits, Server, StaticTokens, VerifiedToken
from ekiden.wire.tasks import EXTENSION
from tests.eras.old_client import OldClient
from tests.eras.old_client import call as old_call
from tests.serving import events, frames, headers_for, post, request, served, soon

RESOURCE = "http://localhost/mcp"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ABLE: dict[str, Any] = {CAPABILITIES: {"elicitation": {}, "extensions": {EXTENSION: {}}}}
TOKENS = {
    "zoe": Principal("zoe", "https://idp.example", "agent", frozenset({"read"}), {"email": "zoe@a.example"}),
    "zoe-later": Principal("zoe", "https://idp.example", "agent", frozenset({"read", "pay"})),
    "eve": Principal("eve", "https://idp.example", "agent", frozenset({"read"})),
    "other-client": Principal("zoe", "https://idp.example", "another agent"),
    "other-issuer": Principal("zoe", "https://evil.example", "agent"),
}
STRANGERS = ("eve", "other-client", "other-issuer")


class Confirm(BaseModel):
    ok: bool


ran: list[str] = []


async def effect(what: str) -> str:
    ran.append(what)
    return what


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def shop(verifier: Any = None) -> Server:
    auth = Auth(RESOURCE, verifier=verifier or StaticTokens(TOKENS))
    server = Server("shop", auth=auth, store="memory:", keys=[b"k" * 32])

    @server.tool
    async def refund(ctx: Context) -> str:
        answer = await ctx.elicit("Really?", Confirm)
        await ctx.step(effect, "refunded")
        again = await ctx.elicit("Sure?", Confirm)
        assert ctx.principal is not None
        return f"{ctx.principal.subject} {answer.action} {again.action}"

    @server.tool(task="required")
    async def long(ctx: Context) -> str:
        await ctx.elicit("Really?", Confirm)
        assert ctx.principal is not None
        return f"{ctx.principal.subject} {sorted(ctx.principal.scopes)} {ctx.principal.claims.get('email')}"

    return server


@pytest.fixture(params=["own", "mounted"])
async def base(request: pytest.FixtureRequest) -> AsyncGenerator[str, None]:
    async with served(shop(), mounted=request.param == "mounted") as url:
        yield url


async def ask(base: str, token: str, method: str, params: dict[str, Any]) -> Any:
    message = request(method, params, **ABLE)
    named = params.get("taskId")
    headers = {} if named is None else {"mcp-name": named}
    answer = await post(base, message, authorization=f"Bearer {token}", **headers)
    return answer.json()


def retried(first: Any, **answers: Any) -> dict[str, Any]:
    result = first["result"]
    (key,) = result["inputRequests"]
    accepted = {"action": "accept", "content": {"ok": True}}
    return {
        "name": "refund",
        "arguments": {},
        "requestState": result["requestState"],
        "inputResponses": {key: accepted},
        **answers,
    }


async def test_a_state_is_of_no_use_to_another(base: str) -> None:
    first = await ask(base, "zoe", "tools/call", {"name": "refund", "arguments": {}})
    for stranger in STRANGERS:
        refused = await ask(base, stranger, "tools/call", retried(first))
        assert refused["error"]["message"].startswith("Invalid or expired requestState")
    assert ran == []
    second = await ask(base, "zoe", "tools/call", retried(first))
    # Another token of the same subject, issuer and client goes on, whatever its scopes are.
    third = await ask(base, "zoe-later", "tools/call", retried(second))
    assert third["result"]["content"][0]["text"] == "zoe accept accept"
    assert ran == ["refunded"]


async def test_a_recorded_round_is_not_given_to_another(base: str) -> None:
    first = await ask(base, "zoe", "tools/call", {"name": "refund", "arguments": {}})
    second = await ask(base, "zoe", "tools/call", retried(first))
    repeated = await ask(base, "zoe-later", "tools/call", retried(first))
    assert repeated["result"]["requestState"] == second["result"]["requestState"]
    for stranger in STRANGERS:
        assert "error" in await ask(base, stranger, "tools/call", retried(first))
    assert ran == ["refunded"]


async def test_a_task_does_not_exist_for_another(base: str) -> None:
    created = await ask(base, "zoe", "tools/call", {"name": "long", "arguments": {}})
    task = created["result"]["taskId"]
    for stranger in STRANGERS:
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            told = await ask(base, stranger, method, {"taskId": task, "inputResponses": {}})
            assert told["error"] == {"code": -32602, "message": "Unknown task"}
    waiting = await _until(base, "zoe", task, "input_required")
    (key,) = waiting["inputRequests"]
    answers = {key: {"action": "accept", "content": {"ok": True}}}
    await ask(base, "zoe-later", "tasks/update", {"taskId": task, "inputResponses": answers})
    done = await _until(base, "zoe", task, "completed")
    # A leg runs for whoever has begun the call, with what the token said then.
    assert done["result"]["content"][0]["text"] == "zoe ['read'] zoe@a.example"


async def _until(base: str, token: str, task: str, status: str) -> Any:
    async with asyncio.timeout(10):
        while True:
            seen = (await ask(base, token, "tasks/get", {"taskId": task}))["result"]
            if seen["status"] == status:
                return seen
            await asyncio.sleep(0.01)


async def test_a_subscription_tells_nothing_about_the_tasks_of_another(base: str) -> None:
    created = await ask(base, "zoe", "tools/call", {"name": "long", "arguments": {}})
    task = created["result"]["taskId"]
    message = request("subscriptions/listen", {"notifications": {"taskIds": [task]}}, **ABLE)
    async with httpx2.AsyncClient(trust_env=False) as http:
        granted: dict[str, Any] = {}
        for token in ("zoe", "eve"):
            headers = {**headers_for(message), "authorization": f"Bearer {token}"}
            async with http.stream("POST", base + "/mcp", json=message, headers=headers) as stream:
                text = ""
                async for chunk in stream.aiter_text():
                    text += chunk
                    if "acknowledged" in text and "\n\n" in text:
                        break
            (acknowledged,) = [f for f in frames(text) if "acknowledged" in f]
            granted[token] = task in acknowledged
    assert granted == {"zoe": True, "eve": False}


async def test_a_session_of_2025_is_not_found_by_another(base: str) -> None:
    async with httpx2.AsyncClient(trust_env=False) as http:
        mine = OldClient(base, http)
        mine.more = {"authorization": "Bearer zoe"}
        await mine.open()
        stolen = dict(mine.headers)
        for stranger in STRANGERS:
            headers = {**stolen, "authorization": f"Bearer {stranger}"}
            statuses = [
                (await http.post(base + "/mcp", json=old_call("refund"), headers=headers)).status_code,
                (await http.get(base + "/mcp", headers=headers)).status_code,
                (await http.delete(base + "/mcp", headers=headers)).status_code,
            ]
            assert statuses == [404, 404, 404]
        without = {name: value for name, value in stolen.items() if name != "authorization"}
        assert (await http.delete(base + "/mcp", headers=without)).status_code == 401
        mine.more = {"authorization": "Bearer zoe-later"}
        assert (await mine.ask("tools/list"))["result"]["tools"]


async def test_a_call_goes_on_with_a_fresh_token_when_the_old_one_expires() -> None:
    now = [1000.0]

    class Short:
        """Tokens are named `subject-number`, and live for ten seconds of the test's clock each."""

        checks_audience = True

        async def verify_token(self, token: str) -> VerifiedToken | None:
            subject, _, number = token.partition("-")
            expires = 1000.0 + 10 * float(number)
            return None if now[0] >= expires else VerifiedToken(subject=subject, expires_at=expires)

    server = Server("shop", auth=Auth(RESOURCE, verifier=Short(), clock=lambda: now[0]), keys=[b"k" * 32])

    @server.tool
    async def refund(ctx: Context) -> str:
        await ctx.elicit("Really?", Confirm)
        await ctx.step(effect, "refunded")
        return "done"

    async with served(server) as base:
        message = request("tools/call", {"name": "refund", "arguments": {}}, **ABLE)
        first = (await post(base, message, authorization="Bearer zoe-1")).json()
        now[0] = 1011.0
        later = request("tools/call", retried(first), **ABLE)
        expired = await post(base, later, authorization="Bearer zoe-1")
        assert (expired.status_code, ran) == (401, [])
        fresh = await post(base, later, authorization="Bearer zoe-2")
        assert fresh.json()["result"]["content"][0]["text"] == "done"
        assert ran == ["refunded"]


async def test_the_authors_own_function_still_says_whose_request_it_is() -> None:
    server = Server(
        "s",
        auth=Auth(RESOURCE, verifier=StaticTokens(TOKENS)),
        principal=lambda request: None if request.principal is None else request.principal.issuer,
        keys=[b"k" * 32],
    )

    @server.tool
    async def refund(ctx: Context) -> str:
        await ctx.elicit("Really?", Confirm)
        return "done"

    async with served(server) as base:
        first = await ask(base, "zoe", "tools/call", {"name": "refund", "arguments": {}})
        assert "error" in await ask(base, "other-issuer", "tools/call", retried(first))
        assert "result" in await ask(base, "eve", "tools/call", retried(first))


async def test_in_memory_the_channel_says_who_calls() -> None:
    server = Server("s", auth=Auth(RESOURCE, verifier=StaticTokens(TOKENS), local=Principal("me")))
    seen: list[Any] = []

    @server.tool
    async def who(ctx: Context) -> str:
        seen.append(ctx.principal and ctx.principal.subject)
        return "seen"

    for options in ({}, {"principal": Principal("zoe")}):
        async with server.connect(**options) as channel:
            await channel.send(request("tools/call", {"name": "who", "arguments": {}}))
            await soon(channel.receive())
    assert seen == ["me", "zoe"]


class Brief:
    """Verifies tokens that are named after the seconds for which they are valid."""

    checks_audience = True

    async def verify_token(self, token: str) -> VerifiedToken:
        return VerifiedToken(subject="zoe", expires_at=time.time() + float(token))


async def test_a_subscription_ends_when_its_token_expires() -> None:
    server = Server("s", auth=Auth(RESOURCE, verifier=Brief()))
    server.tool(effect)
    message = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    async with served(server) as base:
        ended = await soon(post(base, message, authorization="Bearer 1.0"))
    acknowledged, result = events(ended.text)
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert result["result"]["resultType"] == "complete"


async def test_nobody_keeps_others_out_by_calls_that_wait_in_memory() -> None:
    tokens = StaticTokens({name: Principal(name) for name in ("zoe", "mallory")})
    limits = RoundLimits(parked_calls=3)
    server = Server("s", auth=Auth(RESOURCE, verifier=tokens), keys=[b"k" * 32], rounds=limits)

    @server.tool(resume="parked")
    async def refund(ctx: Context) -> str:
        await ctx.elicit("Really?", Confirm)
        return "done"

    message = request("tools/call", {"name": "refund", "arguments": {}}, **ABLE)

    async def ask(name: str) -> Any:
        return (await post(base, message, authorization=f"Bearer {name}")).json()

    async def go_on(name: str, first: Any) -> Any:
        later = request("tools/call", retried(first), **ABLE)
        return (await post(base, later, authorization=f"Bearer {name}")).json()

    async with served(server) as base:
        greedy = [await ask("mallory") for _ in range(3)]
        too_many = await ask("mallory")
        other = await ask("zoe")
        assert (await go_on("zoe", other))["result"]["content"][0]["text"] == "done"
        ends = [await go_on("mallory", first) for first in greedy]
    assert "Too many calls" in str(too_many)
    assert ["result" in end for end in ends] == [True, True, False]


async def test_a_stream_that_is_resumed_ends_when_its_token_expires_and_no_other_does() -> None:
    server, go = Server("s", auth=Auth(RESOURCE, verifier=Brief())), asyncio.Event()

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.info("waiting")
        await go.wait()
        return "done"

    async with served(server) as base, httpx2.AsyncClient(trust_env=False) as http:
        old = OldClient(base, http)
        old.more = {"authorization": "Bearer 60"}
        await old.open()
        calling = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "wait"}}
        lasting = {**old.headers, "authorization": "Bearer 60", "accept": "text/event-stream"}
        async with http.stream("POST", base + "/mcp", json=calling, headers=lasting) as first:
            said, pieces = "", first.aiter_text()
            while "waiting" not in said:
                said += await soon(anext(pieces))
        place = re.findall(r"id: (\S+)", said)[-1]
        async with http.stream("GET", base + "/mcp", headers=lasting) as changes:
            brief = {**lasting, "authorization": "Bearer 1.0", "last-event-id": place}
            resumed = await soon(http.get(base + "/mcp", headers=brief))
            again = await http.get(base + "/mcp", headers=lasting)
            go.set()
            rest = await soon(http.get(base + "/mcp", headers={**lasting, "last-event-id": place}))
            assert changes.status_code == 200
    assert (resumed.status_code, resumed.text) == (200, "")
    assert again.status_code == 409  # The stream for changes is still open.
    assert "done" in rest.text


async def test_the_stream_of_a_session_ends_when_its_token_expires() -> None:
    server = Server("s", auth=Auth(RESOURCE, verifier=Brief()))
    server.tool(effect)
    async with served(server) as base, httpx2.AsyncClient(trust_env=False) as http:
        old = OldClient(base, http)
        old.more = {"authorization": "Bearer 60"}
        await old.open()
        headers = {**old.headers, "authorization": "Bearer 1.0", "accept": "text/event-stream"}
        assert (await soon(http.get(base + "/mcp", headers=headers))).status_code == 200
        assert (await old.ask("tools/list"))["result"]["tools"]
