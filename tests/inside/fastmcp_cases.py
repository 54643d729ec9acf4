"""What stays in force in a FastMCP that has durable tools, and what is refused at registration.

Run by the interpreter of `.peers/in-fastmcp`; prints what became of each case, as one JSON object.
"""

import asyncio
import contextlib
import importlib.metadata
import inspect
import json
import re
import sys
import traceback
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any
from unittest import mock

import httpx2
import mcp_types as types
from fastmcp import Context as HostContext
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.extensions import ServerExtension
from fastmcp.server.middleware import Middleware
from mcp.client import Client
from pydantic import BaseModel

from ekiden import Context, RegistrationError, UsageError
from ekiden.integrations.fastmcp import Durable
from ekiden.integrations.inside import fastmcp_parts

KEY = "bqMJ8Ow9t3d0DPSLtXsMOGN0yGFoC9wVLNeUl4hJH9E="


class Confirm(BaseModel):
    ok: bool


async def ask(ctx: Context) -> str:
    """Ask once."""
    answer = await ctx.elicit("Go?", Confirm)
    return f"{answer.action} with {ctx.state}"


async def numbers(ctx: Context) -> list[int]:
    """Data that is not an object."""
    await ctx.elicit("Go?", Confirm)
    return [1, 2]


async def yes(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"ok": True})


def connected(server: FastMCP, mode: Any) -> Client:
    return Client(server._mcp_server, mode=mode, elicitation_callback=yes)


def text(result: Any) -> str:
    return str(result.content[0].text)


@contextlib.contextmanager
def refused(kind: type[Exception], words: str) -> Generator[None, None, None]:
    try:
        yield
    except kind as error:
        if not re.search(words, str(error)):
            raise
    else:
        raise AssertionError(f"not refused: {words}")


async def test_the_hosts_lifespan_gives_the_state() -> None:
    ended: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(_: FastMCP) -> AsyncGenerator[str, None]:
        yield "a database"
        ended.append("closed")

    for mode in ("auto", "legacy"):
        server = FastMCP("shop", lifespan=lifespan)
        Durable(server, keys=[KEY]).tool(ask)
        async with connected(server, mode) as client:
            assert text(await client.call_tool("ask", {})) == "accept with a database"
    assert ended == ["closed", "closed"]


async def test_middleware_of_the_host_is_around_durable_calls() -> None:
    seen: list[str] = []

    class Noting(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            seen.append(f"called {context.message.name}")
            if context.message.arguments.get("order") == "forbidden":
                raise ToolError("not you")
            result = await call_next(context)
            seen.append(type(result).__name__)
            return result

        async def on_get_prompt(self, context: Any, call_next: Any) -> Any:
            result = await call_next(context)
            seen.append(f"prompt {len(result.messages)}")
            return result

        async def on_read_resource(self, context: Any, call_next: Any) -> Any:
            result = await call_next(context)
            seen.append(f"resource {len(result.contents)}")
            return result

    server = FastMCP("shop")
    durable = Durable(server, keys=[KEY])
    server.add_middleware(Noting())

    @durable.tool
    async def refund(order: str, ctx: Context) -> str:
        return (await ctx.elicit(f"Refund {order}?", Confirm)).action

    durable.prompt(ask)
    durable.resource("shop://x")(ask)
    async with connected(server, "auto") as client:
        assert text(await client.call_tool("refund", {"order": "1"})) == "accept"
        assert seen == ["called refund", "InputRequiredToolResult", "called refund", "ToolResult"]
        assert (await client.call_tool("refund", {"order": "forbidden"})).is_error
        await client.get_prompt("ask")
        await client.read_resource("shop://x")
    assert seen[-4:] == ["prompt 0", "prompt 1", "resource 0", "resource 1"]


async def test_data_that_is_not_an_object_is_told_in_both_eras() -> None:
    server = FastMCP("shop")
    Durable(server, keys=[KEY]).tool(numbers)
    for mode, wanted in (("auto", [1, 2]), ("legacy", {"result": [1, 2]})):
        async with connected(server, mode) as client:
            (tool,) = (await client.list_tools()).tools
            assert tool.output_schema["type"] == ("array" if mode == "auto" else "object")
            assert (await client.call_tool("numbers", {})).structured_content == wanted


async def test_a_tool_of_the_host_that_asks_keeps_its_own_state() -> None:
    server = FastMCP("shop")
    Durable(server, keys=[KEY]).tool(ask)

    @server.tool
    async def own(ctx: HostContext) -> str | types.InputRequiredResult:
        if not ctx.input_responses:
            form = types.ElicitRequest(
                params=types.ElicitRequestFormParams(
                    message="Own?", requested_schema={"type": "object", "properties": {}}
                )
            )
            return types.InputRequiredResult(input_requests={"q": form}, request_state="mine")
        return f"state: {ctx.request_state}"

    async with connected(server, "auto") as client:
        assert text(await client.call_tool("own", {})) == "state: mine"
        assert text(await client.call_tool("ask", {})) == "accept with {}"


async def test_a_tool_that_the_host_hides_cannot_be_called() -> None:
    server = FastMCP("shop")
    Durable(server, keys=[KEY]).tool(ask)
    server.disable(names={"ask"})
    async with connected(server, "auto") as client:
        assert (await client.list_tools()).tools == []
        assert (await client.call_tool("ask", {})).is_error


async def test_tools_of_a_mounted_server_ask_too() -> None:
    child, parent = FastMCP("child"), FastMCP("parent")
    Durable(child, keys=[KEY]).tool(ask)
    parent.mount(child, namespace="sub")
    for mode in ("auto", "legacy"):
        async with connected(parent, mode) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["sub_ask"]
            assert text(await client.call_tool("sub_ask", {})).startswith("accept")


async def test_the_identity_that_the_host_verified_is_the_principal() -> None:
    tokens: dict[str, Any] = {who: {"client_id": "app", "sub": who, "scopes": []} for who in ("alice", "bob")}
    tokens["scoped"] = {**tokens["alice"], "scopes": ["names"]}
    server = FastMCP("shop", auth=StaticTokenVerifier(tokens=tokens))
    durable = Durable(server, keys=[KEY], store="memory:")
    durable.tool(ask)
    durable.tool(name="waiting", task="required")(ask)
    durable.tool(name="whoami", scopes=["names"])(_whoami)
    application = server.http_app(path="/mcp")
    capabilities = {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }

    async def as_user(who: str, method: str, **params: Any) -> dict[str, Any]:
        headers = {
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {who}",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
            **({"mcp-name": name} if (name := params.get("name", params.get("taskId"))) else {}),
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        response = await http.post("/mcp", json=message, headers=headers)
        said: dict[str, Any] = response.json()
        return said

    transport = httpx2.ASGITransport(app=application)
    http = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")
    async with application.router.lifespan_context(application), http:
        asked = (await as_user("alice", "tools/call", name="ask", arguments={}))["result"]
        answers = {key: {"action": "accept", "content": {"ok": True}} for key in asked["inputRequests"]}
        retry = {"requestState": asked["requestState"], "inputResponses": answers}
        foreign = await as_user("bob", "tools/call", name="ask", arguments={}, **retry)
        assert foreign["error"]["code"] == -32602, foreign
        mine = await as_user("alice", "tools/call", name="ask", arguments={}, **retry)
        assert mine["result"]["content"][0]["text"] == "accept with {}"
        created = (await as_user("alice", "tools/call", name="waiting", arguments={}))["result"]
        foreign = await as_user("bob", "tasks/get", taskId=created["taskId"])
        assert foreign["error"]["message"] == "Unknown task"
        assert (await as_user("alice", "tasks/get", taskId=created["taskId"]))["result"]["status"]
        assert "error" in await as_user("nobody", "tools/call", name="ask", arguments={})
        who = (await as_user("scoped", "tools/call", name="whoami", arguments={}))["result"]
        assert who["content"][0]["text"] == "alice by app"
        lacking = await as_user("alice", "tools/call", name="whoami", arguments={})
        assert "scope" in lacking["error"]["message"]
        tools = (await as_user("alice", "tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["ask", "waiting"]


async def test_a_mounted_server_hides_what_its_caller_lacks_scopes_for() -> None:
    child, parent = FastMCP("child"), FastMCP("parent")
    durable = Durable(child, keys=[KEY], store="memory:")
    durable.tool(ask)
    durable.tool(name="secret", scopes=["names"])(_whoami)
    durable.prompt(name="secret", scopes=["names"])(ask)
    durable.resource("shop://secret", scopes=["names"])(ask)
    durable.resource("shop://{name}", scopes=["names"])(_named)
    parent.mount(child, namespace="sub")
    for mode in ("auto", "legacy"):
        async with connected(parent, mode) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["sub_ask"]
            assert (await client.list_prompts()).prompts == []
            assert (await client.list_resources()).resources == []
            assert (await client.list_resource_templates()).resource_templates == []
            lacking = await client.call_tool("sub_secret", {})
            assert lacking.is_error
            assert "scope" in text(lacking)


async def test_a_tool_of_a_mounted_server_is_not_run_as_a_task_that_its_client_cannot_have() -> None:
    ran: list[str] = []

    async def note(how: str, ctx: Context) -> str:
        """Leave a trace."""
        ran.append(how)
        return "done"

    child, parent = FastMCP("child"), FastMCP("parent")
    durable = Durable(child, keys=[KEY], store="memory:")
    durable.tool(name="may", task="optional")(note)
    durable.tool(name="must", task="required")(note)
    parent.mount(child, namespace="sub")
    application = parent.http_app(path="/mcp")
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    transport = httpx2.ASGITransport(app=application)
    http = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")
    answers: dict[str, Any] = {}
    async with application.router.lifespan_context(application), http:
        for name in ("may", "must"):
            params = {"name": f"sub_{name}", "arguments": {"how": name}, "_meta": meta}
            headers = {
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": "tools/call",
                "mcp-name": f"sub_{name}",
            }
            headers["accept"] = "application/json, text/event-stream"
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            answers[name] = (await http.post("/mcp", json=message, headers=headers)).json()
        await asyncio.sleep(0.2)
    assert answers["may"]["result"]["content"][0]["text"] == "done", answers
    assert "error" in answers["must"] or answers["must"]["result"]["isError"], answers
    assert ran == ["may"], ran


async def _named(name: str, ctx: Context) -> str:
    """A resource of a template."""
    return name


async def _whoami(ctx: Context) -> str:
    """Who calls."""
    assert ctx.principal is not None
    return f"{ctx.principal.subject} by {ctx.principal.client}"


async def test_a_server_without_a_name_has_the_same_audience_in_every_process() -> None:
    for _ in range(2):
        server = FastMCP()
        assert re.fullmatch(r"FastMCP-[0-9a-f]{4}", server.name)
        assert Durable(server, keys=[KEY]).engine.server.name == "FastMCP"


# Bad input


async def test_a_name_that_the_host_has_is_refused() -> None:
    server = FastMCP("shop")
    server.tool(name="ask")(_text)
    server.prompt(name="ask")(_text)
    server.resource("shop://x")(_text)
    server.resource("shop://y/{n}")(_numbered)
    durable = Durable(server, keys=[KEY])
    for register, handler, what in (
        (durable.tool, ask, "tool 'ask'"),
        (durable.prompt, ask, "prompt 'ask'"),
        (durable.resource("shop://x"), ask, "resource 'shop://x'"),
        (durable.resource("shop://y/{n}"), _numbered, "resource template 'shop://y/{n}'"),
    ):
        with refused(RegistrationError, re.escape(f"the host has a {what} of its own")):
            register(handler)


def _text() -> str:
    """Text of the host."""
    return "host"


def _numbered(n: str) -> str:
    """Text with a number."""
    return n


async def test_a_name_that_the_host_has_got_since_is_refused_at_the_start() -> None:
    server = FastMCP("shop")
    Durable(server, keys=[KEY]).tool(ask)
    server.tool(name="ask")(_text)
    with refused(RegistrationError, "the host has a tool 'ask'"):
        async with connected(server, "auto"):
            raise AssertionError("it started")


async def test_a_handler_with_the_hosts_context_is_refused() -> None:
    async def wrong(order: str, ctx: HostContext) -> str:
        return order

    with refused(RegistrationError, "from ekiden import Context"):
        Durable(FastMCP("shop"), keys=[KEY]).tool(wrong)


class Tasks(ServerExtension):
    identifier = "io.modelcontextprotocol/tasks"


async def test_tasks_of_the_host_beside_ours_are_refused() -> None:
    server = FastMCP("shop")
    server.add_extension(Tasks())
    durable = Durable(server, keys=[KEY], store="memory:")
    durable.tool(ask)
    with refused(RegistrationError, r"serves io\.modelcontextprotocol/tasks already"):
        durable.tool(name="task", task="optional")(ask)


async def test_tasks_of_the_host_after_ours_are_refused() -> None:
    server = FastMCP("shop")
    durable = Durable(server, keys=[KEY], store="memory:")
    durable.tool(name="first", task="optional")(ask)
    durable.tool(name="second", task="optional")(ask)
    with refused(ValueError, "already registered"):
        server.add_extension(Tasks())


async def test_a_host_of_a_version_that_is_not_known_is_refused() -> None:
    for version in ("2.14.7", "3.4.10", "4.0.9", "5.0.0"):
        with (
            mock.patch.object(importlib.metadata, "version", return_value=version),
            refused(UsageError, rf"needs fastmcp 4\.1 or later, before 5, and {re.escape(version)}"),
        ):
            Durable(FastMCP("shop"))


async def test_something_else_than_a_fastmcp_is_refused() -> None:
    with refused(UsageError, "takes a FastMCP, not object; for MCPServer"):
        Durable(object())  # type: ignore[arg-type]


async def test_this_version_of_the_host_has_all_private_parts_that_are_used() -> None:
    """If this fails, the message says which part the new version has moved."""
    assert fastmcp_parts.missing_parts(FastMCP("shop")) == []


async def test_a_part_that_moved_is_named() -> None:
    for part in ("_mcp_server", "_local_provider", "_extensions", "_lifespan_result"):
        server = FastMCP("shop")
        delattr(server, part)
        with refused(UsageError, rf"has no .*FastMCP\.{part}.*install another version of fastmcp"):
            Durable(server)


CASES = {
    name: case
    for name, case in list(globals().items())
    if name.startswith("test_") and inspect.iscoroutinefunction(case)
}


async def outcomes(names: Sequence[str]) -> dict[str, str | None]:
    """What became of each case: nothing, or how it failed."""
    ended: dict[str, str | None] = {}
    for name in names:
        try:
            async with asyncio.timeout(20):
                await CASES[name]()
            ended[name] = None
        except Exception:
            ended[name] = traceback.format_exc()
    return ended


if __name__ == "__main__":
    print(json.dumps(asyncio.run(outcomes(sys.argv[1:] or list(CASES)))))
