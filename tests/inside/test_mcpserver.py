"""What stays in force in an `MCPServer` that has durable tools, and what is refused at registration."""

import asyncio
import importlib.metadata
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context as HostContext
from mcp.server.mcpserver import MCPServer
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from pydantic import AnyHttpUrl, BaseModel
from starlette.authentication import UnauthenticatedUser
from starlette.requests import Request as HttpRequest

from ekiden import Client as EkidenClient
from ekiden import Context, RegistrationError, UsageError
from ekiden.client.sessions.session import ClientRequest
from ekiden.integrations.inside.identity import verified_principal
from ekiden.integrations.mcp import Durable
from tests.serving import post, request, served, soon

KEY = "bqMJ8Ow9t3d0DPSLtXsMOGN0yGFoC9wVLNeUl4hJH9E="


class Confirm(BaseModel):
    ok: bool


async def ask(ctx: Context) -> str:
    """Ask once."""
    answer = await ctx.elicit("Go?", Confirm)
    return f"{answer.action} with {ctx.state}"


async def yes(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"ok": True})


def client(server: MCPServer[Any], mode: Any = "auto", **options: Any) -> Client:
    return Client(server, mode=mode, elicitation_callback=yes, **options)


def text(result: Any) -> str:
    return str(result.content[0].text)


both_eras = pytest.mark.parametrize("mode", ["auto", "legacy"])


@both_eras
async def test_the_hosts_lifespan_gives_the_state(mode: str) -> None:
    ended: list[str] = []

    @asynccontextmanager
    async def lifespan(_: MCPServer[str]) -> AsyncGenerator[str, None]:
        yield "a database"
        ended.append("closed")

    server = MCPServer("shop", lifespan=lifespan)
    durable = Durable(server, keys=[KEY], store="memory:")
    durable.tool(ask)
    durable.tool(name="in_a_task", task="optional")(ask)
    async with client(server, mode) as connected:
        assert text(await soon(connected.call_tool("ask", {}))) == "accept with a database"
    assert ended == ["closed"]


@both_eras
async def test_middleware_of_the_host_is_around_durable_calls_whenever_it_was_added(mode: str) -> None:
    seen: list[str] = []

    def noting(name: str) -> Any:
        async def middleware(ctx: Any, call_next: Any) -> Any:
            if ctx.method == "tools/call":
                seen.append(f"{name} {sorted(ctx.params.keys() & {'inputResponses', 'requestState'})}")
            return await call_next(ctx)

        return middleware

    server = MCPServer("shop", middleware=[noting("before")])
    Durable(server, keys=[KEY]).tool(ask)
    server.middleware.append(noting("after"))
    async with client(server, mode) as connected:
        await soon(connected.call_tool("ask", {}))
    if mode == "legacy":
        assert seen == ["before []", "after []"]
    else:
        later = "['inputResponses']"
        assert seen == ["before []", "after []", f"before {later}", f"after {later}"], "the state goes around"


async def test_middleware_of_the_host_can_refuse_and_change_durable_calls() -> None:
    async def middleware(ctx: Any, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        if ctx.params["arguments"].get("order") == "forbidden":
            raise MCPError(-32000, "not you")
        return await call_next(replace(ctx, params={**ctx.params, "arguments": {"order": "changed"}}))

    server = MCPServer("shop", middleware=[middleware])

    @Durable(server, keys=[KEY]).tool
    async def refund(order: str, ctx: Context) -> str:
        answer = await ctx.elicit(f"Refund {order}?", Confirm)
        return f"{order}: {answer.action}"

    async with client(server) as connected:
        assert text(await soon(connected.call_tool("refund", {"order": "original"}))) == "changed: accept"
        with pytest.raises(MCPError, match="not you"):
            await connected.call_tool("refund", {"order": "forbidden"})


async def test_extensions_of_the_host_intercept_durable_calls() -> None:
    class Counting(Extension):
        identifier = "com.example/counting"
        called: Sequence[str] = ()

        async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
            self.called = [*self.called, params.name]
            return await call_next(ctx)

    counting = Counting()
    server = MCPServer("shop", extensions=[counting])
    Durable(server, keys=[KEY]).tool(ask)
    async with client(server) as connected:
        await soon(connected.call_tool("ask", {}))
    assert counting.called == ["ask", "ask"]


async def test_a_tool_of_the_host_that_asks_keeps_its_own_state() -> None:
    server = MCPServer("shop")
    Durable(server, keys=[KEY]).tool(ask)

    @server.tool()
    async def own(ctx: HostContext[Any, Any]) -> str | types.InputRequiredResult:
        if ctx.input_responses is None:
            form = types.ElicitRequest(
                params=types.ElicitRequestFormParams(
                    message="Own?", requested_schema={"type": "object", "properties": {}}
                )
            )
            return types.InputRequiredResult(input_requests={"q": form}, request_state="mine")
        return f"state: {ctx.request_state}"

    async with client(server) as connected:
        assert text(await soon(connected.call_tool("own", {}))) == "state: mine"
        assert text(await soon(connected.call_tool("ask", {}))) == "accept with {}"


class Verifier:
    """A verifier whose tokens are the names of their subjects."""

    async def verify_token(self, token: str) -> AccessToken:
        subject, _, scopes = token.partition(":")
        return AccessToken(token=token, client_id="app", scopes=scopes.split(), subject=subject)


ALL = {
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
}


async def test_the_identity_that_the_host_verified_is_the_principal() -> None:
    where = AnyHttpUrl("http://127.0.0.1:1")
    auth = AuthSettings(
        issuer_url=where, resource_server_url=where, required_scopes=[], validate_token_resource=False
    )
    server = MCPServer("shop", auth=auth, token_verifier=Verifier())
    durable = Durable(server, keys=[KEY], store="memory:")
    durable.tool(ask)
    durable.tool(name="waiting", task="required")(ask)
    durable.tool(name="whoami", scopes=["names"])(_whoami)
    async with served(server.streamable_http_app()) as base:

        async def as_user(subject: str, method: str, **params: Any) -> dict[str, Any]:
            message = request(method, params, **ALL)
            response = await post(base, message, authorization=f"Bearer {subject}")
            said: dict[str, Any] = response.json()
            return said

        asked = (await as_user("alice", "tools/call", name="ask", arguments={}))["result"]
        answers = {key: {"action": "accept", "content": {"ok": True}} for key in asked["inputRequests"]}
        retry = {"requestState": asked["requestState"], "inputResponses": answers}
        foreign = await as_user("bob", "tools/call", name="ask", arguments={}, **retry)
        assert foreign["error"]["code"] == -32602
        mine = await as_user("alice", "tools/call", name="ask", arguments={}, **retry)
        assert mine["result"]["content"][0]["text"] == "accept with {}"
        created = (await as_user("alice", "tools/call", name="waiting", arguments={}))["result"]
        foreign = await as_user("bob", "tasks/get", taskId=created["taskId"])
        assert foreign["error"]["message"] == "Unknown task"
        assert (await as_user("alice", "tasks/get", taskId=created["taskId"]))["result"]["status"]
        assert (await post(base, request("tools/list"))).status_code == 401
        with_scope = (await as_user("alice:names", "tools/call", name="whoami", arguments={}))["result"]
        assert with_scope["content"][0]["text"] == "alice by app"
        assert (
            "scope" in (await as_user("alice", "tools/call", name="whoami", arguments={}))["error"]["message"]
        )
        listed = {
            who: [tool["name"] for tool in (await as_user(who, "tools/list"))["result"]["tools"]]
            for who in ("alice", "alice:names")
        }
        assert listed == {"alice": ["ask", "waiting"], "alice:names": ["ask", "waiting", "whoami"]}


def test_a_request_without_a_token_is_nobodys_although_its_session_began_with_one() -> None:
    alice = AuthenticatedUser(AccessToken(token="t", client_id="app", scopes=["names"], subject="alice"))
    # Not every verifier of others fills in `subject`.
    bob = AuthenticatedUser(AccessToken(token="b", client_id="app", scopes=[], claims={"sub": "bob"}))
    users: list[dict[str, Any]] = [{"user": alice}, {"user": bob}, {"user": UnauthenticatedUser()}, {}]
    remembered = auth_context_var.set(alice)
    try:
        found = [verified_principal(_came_with(HttpRequest({"type": "http", **user}))) for user in users]
        local = verified_principal(_came_with(None))
    finally:
        auth_context_var.reset(remembered)
    subjects = [None if who is None else who.subject for who in (*found, local)]
    assert subjects == ["alice", "bob", None, None, "alice"]


def _came_with(http: HttpRequest | None) -> Any:
    return SimpleNamespace(request=http)


async def _whoami(ctx: Context) -> str:
    """Who calls."""
    assert ctx.principal is not None
    return f"{ctx.principal.subject} by {ctx.principal.client}"


async def test_a_principal_with_a_session_of_2025_lists_its_tasks_and_no_others() -> None:
    server = MCPServer("shop")
    who = ["alice"]
    durable = Durable(server, keys=[KEY], store="memory:", principal=lambda ctx: who[0])
    durable.tool(name="waiting", task="required")(ask)
    async with served(server.streamable_http_app()) as base:
        for who[0], tasks in (("alice", 2), ("bob", 1)):
            async with EkidenClient(f"{base}/mcp", mode="legacy", elicit=_accept) as connected:
                assert "list" in connected.session.capabilities["tasks"]
                for _ in range(tasks):
                    await soon(connected.call_tool("waiting"))
                listed = await soon(connected.session.request(ClientRequest("tasks/list", {})))
                assert len(listed["tasks"]) == tasks


async def _accept(params: Any) -> types.ElicitResult:
    return await yes(None, params)


async def test_a_client_that_leaves_does_not_stop_a_step_that_runs() -> None:
    server, began, ended = MCPServer("shop"), asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        began.set()
        await asyncio.sleep(0.2)
        ended.set()
        return "done"

    @Durable(server, keys=[KEY]).tool
    async def work(ctx: Context) -> str:
        return await ctx.step(slow, key="slow")

    async with client(server) as connected:
        calling = asyncio.create_task(connected.call_tool("work", {}))
        await soon(began.wait())
        calling.cancel()
        await asyncio.wait([calling])
        await soon(ended.wait())


# Bad input


def test_a_name_that_the_host_has_is_refused() -> None:
    server = MCPServer("shop")
    server.tool(name="ask")(lambda: "host")
    server.prompt(name="ask")(lambda: "host")
    server.resource("shop://x", name="x")(lambda: "host")
    server.resource("shop://y/{n}", name="y")(lambda n: "host")
    durable = Durable(server, keys=[KEY])
    for register, what in (
        (durable.tool, "tool 'ask'"),
        (durable.prompt, "prompt 'ask'"),
        (durable.resource("shop://x"), "resource 'shop://x'"),
        (durable.resource("shop://y/{n}"), "resource template 'shop://y/{n}'"),
    ):
        handler = ask if "template" not in what else _numbered
        with pytest.raises(RegistrationError, match="the host has a ") as refused:
            register(handler)
        assert what in str(refused.value)
    assert durable.engine.definitions("tools") == []


async def _numbered(n: str) -> str:
    """A resource."""
    return n


async def test_a_name_that_the_host_has_got_since_is_refused_at_the_start() -> None:
    server = MCPServer("shop")
    Durable(server, keys=[KEY]).tool(ask)
    server.tool(name="ask")(lambda: "host")
    with pytest.raises(RegistrationError, match="the host has a tool 'ask'"):
        async with client(server):
            raise AssertionError("it started")


def test_the_same_name_twice_is_refused() -> None:
    durable = Durable(MCPServer("shop"), keys=[KEY])
    durable.tool(ask)
    with pytest.raises(RegistrationError, match="registered already"):
        durable.tool(ask)


def test_a_handler_with_the_hosts_context_is_refused() -> None:
    durable = Durable(MCPServer("shop"), keys=[KEY])

    async def wrong(order: str, ctx: HostContext[Any, Any]) -> str:
        return order

    async def optional(ctx: HostContext[Any, Any] | None = None) -> str:
        return ""

    for handler in (wrong, optional):
        with pytest.raises(RegistrationError, match=r"from ekiden import Context"):
            durable.tool(handler)
        with pytest.raises(RegistrationError, match=r"from ekiden import Context"):
            durable.prompt(handler)


def test_tasks_of_the_host_beside_ours_are_refused() -> None:
    class Tasks(Extension):
        identifier = "io.modelcontextprotocol/tasks"

        def methods(self) -> Sequence[MethodBinding]:
            return [MethodBinding("tasks/get", types.RequestParams, _nothing)]

    durable = Durable(MCPServer("shop", extensions=[Tasks()]), keys=[KEY], store="memory:")
    durable.tool(ask)
    with pytest.raises(RegistrationError, match=r"serves io\.modelcontextprotocol/tasks already"):
        durable.tool(name="task", task="optional")(ask)


async def _nothing(ctx: Any, params: Any) -> None:
    return None


def test_a_shared_store_without_shared_keys_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EKIDEN_KEYS", raising=False)
    with caplog.at_level(logging.WARNING):
        Durable(MCPServer("a"), store=f"sqlite:///{tmp_path / 'a.db'}", keys=[KEY])
        Durable(MCPServer("b"))
        assert not caplog.records
        Durable(MCPServer("c"), store=f"sqlite:///{tmp_path / 'c.db'}")
    assert "no keys that they share" in caplog.text
    assert "ekiden keys new" in caplog.text


@pytest.mark.parametrize("version", ["1.30.0", "2.2.9", "3.0.0"])
def test_a_host_of_a_version_that_is_not_known_is_refused(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda package: version)
    with pytest.raises(UsageError, match=rf"needs mcp 2\.3 or later, before 3, and {version}"):
        Durable(MCPServer("shop"))


def test_something_else_than_an_mcpserver_is_refused() -> None:
    with pytest.raises(UsageError, match="takes an MCPServer, not object; for FastMCP"):
        Durable(object())  # type: ignore[arg-type]


def test_this_version_of_the_host_has_all_private_parts_that_are_used() -> None:
    """If this fails, the message says which part the new version has moved."""
    from ekiden.integrations.inside import official_parts as parts

    server = MCPServer("shop")
    assert parts.missing_parts(server, parts.low_level(server)) == []


@pytest.mark.parametrize("part", ["_lowlevel_server", "_tool_manager", "_extensions"])
def test_a_part_that_moved_is_named(part: str) -> None:
    server = MCPServer("shop")
    delattr(server, part)
    with pytest.raises(UsageError, match=rf"has no .*MCPServer\.{part}.*install another version of mcp"):
        Durable(server)


def test_a_part_of_sessions_that_moved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(self: Any) -> None:
        self.somewhere_else = None

    monkeypatch.setattr(ServerSession, "__init__", moved)
    with pytest.raises(UsageError, match=r"ServerSession\._request_outbound"):
        Durable(MCPServer("shop"))
