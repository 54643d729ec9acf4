"""What is said and refused when a FastMCP is carried, and what its handlers can rely on.

Run by the interpreter of `.peers/in-fastmcp`; prints what became of each case, as one JSON object.
"""

import asyncio
import importlib.metadata
import inspect
import json
import sys
import traceback
from typing import Any
from unittest import mock

import httpx2
import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.authorization import AuthMiddleware
from fastmcp.server.middleware.timing import TimingMiddleware
from pydantic import BaseModel

from ekiden import Client, ProtocolError, UsageError
from ekiden.integrations.carried import carry
from ekiden.integrations.inside import fastmcp_parts as parts


class Confirm(BaseModel):
    ok: bool


class Noting(Middleware):
    """A middleware of the author's own."""


def nobody(context: Any) -> bool:
    return False


async def yes(params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"ok": True})


def refusal(server: FastMCP, **options: Any) -> str:
    try:
        carry(server, **options)
    except UsageError as error:
        return str(error)
    raise AssertionError("it is not refused")


async def failure(request: Any) -> ProtocolError:
    try:
        await request
    except ProtocolError as error:
        return error
    raise AssertionError("it is answered")


async def test_a_plain_server_leaves_nothing_behind() -> None:
    server = FastMCP("shop")
    server.tool(lambda: "x", name="x")
    assert carry(server, strict=True).left_behind == []


async def test_every_list_is_answered_and_pages_for_apps_are_declared() -> None:
    for mode in ("modern", "legacy"):
        async with Client(carry(FastMCP("shop")), mode=mode) as client:
            lists = [
                await client.list_tools(),
                await client.list_prompts(),
                await client.list_resources(),
                await client.list_resource_templates(),
            ]
            assert lists == [[], [], [], []], lists
            declared = client.server_extension("io.modelcontextprotocol/ui")
            assert declared == ({} if mode == "modern" else None), declared


async def test_a_result_says_that_it_is_no_error() -> None:
    server = FastMCP("shop")
    server.tool(lambda: "x", name="x")
    async with Client(carry(server)) as client:
        result = await client.call_tool("x")
        assert "is_error" in result.model_fields_set, result


async def test_what_cannot_be_carried_is_named_line_by_line() -> None:
    server = FastMCP("shop", middleware=[Noting()], experimental_capabilities={"x": {}})
    billing = FastMCP("billing")
    billing.tool(lambda: "paid", name="pay")
    server.mount(billing, "billing")

    @server.custom_route("/hello", methods=["GET"])
    async def hello(request: Any) -> Any: ...

    @server.tool(version="1")
    def twice() -> str:
        return "1"

    @server.tool(version="2", name="twice")
    def again() -> str:
        return "2"

    @server.tool(auth=nobody)
    def guarded() -> str:
        return "guarded"

    carried = carry(server)
    found = "\n".join(carried.left_behind)
    assert "middleware Noting: calls do not pass through it" in found, found
    assert "its components are served, but cannot ask clients of 2026-07-28" in found, found
    assert "custom route /hello: it is not served" in found, found
    assert "experimental capabilities x: not declared" in found, found
    assert "FunctionTool 'twice': of its 2 versions only the highest is served" in found, found
    assert "FunctionTool 'guarded': it is left out, for its auth= would not be checked" in found, found
    assert len(carried.left_behind) == 6, found
    said = refusal(server, strict=True)
    assert said.startswith("--strict: not all of shop can be carried:"), said
    assert all(f"\n  {line}" in said for line in carried.left_behind), said
    async with Client(carried) as client:
        assert [tool.name for tool in await client.list_tools()] == ["twice", "billing_pay"]
        assert (await client.call_tool("billing_pay")).content[0].text == "paid"
        assert (await client.call_tool("twice")).content[0].text == "2"


async def test_a_server_with_an_auth_provider_is_refused_unless_its_author_says_so() -> None:
    server = FastMCP("shop", auth=StaticTokenVerifier({"t": {"client_id": "c", "scopes": []}}))
    said = refusal(server)
    assert "has an auth provider (StaticTokenVerifier), which is not carried" in said, said
    assert carry(server, without_auth=True).left_behind[0].startswith("auth provider StaticTokenVerifier")


async def test_a_server_with_middleware_of_its_author_is_refused_unless_its_author_says_so() -> None:
    class Checking(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            raise AssertionError

    class Inheriting(TimingMiddleware):
        async def on_message(self, context: Any, call_next: Any) -> Any:
            raise AssertionError

    class Hiding(Middleware):
        async def on_list_tools(self, context: Any, call_next: Any) -> Any:
            return []

    class Around(Middleware):
        async def __call__(self, context: Any, call_next: Any) -> Any:
            raise AssertionError

    async def function(context: Any, call_next: Any) -> Any:
        raise AssertionError

    changed = Middleware()
    changed.on_request = function  # type: ignore[method-assign]
    guards: list[Any] = [Checking(), Inheriting(), Hiding(), Around(), function, changed]
    for guard in [*guards, AuthMiddleware(auth=nobody)]:
        server = FastMCP("shop")
        server.middleware.append(guard)
        said = refusal(server)
        assert "which is not carried: what it checks, nobody would check" in said, said
        assert "Pass --without-middleware" in said, said
        assert len(carry(server, without_middleware=True).left_behind) == 1
    plain = FastMCP("shop", middleware=[TimingMiddleware(), Noting()])
    assert len(carry(plain).left_behind) == 2


async def test_a_session_that_a_request_of_2026_names_is_not_looked_at() -> None:
    server = FastMCP("shop")

    @server.tool
    async def put(value: str, ctx: Context) -> str:
        await ctx.set_state("value", value)
        return "kept"

    @server.tool
    async def get(ctx: Context) -> str:
        return str(await ctx.get_state("value"))

    carried = carry(server)
    application = carried.asgi()
    transport = httpx2.ASGITransport(app=application)
    version, meta = "2025-11-25", {"protocolVersion": "2025-11-25", "capabilities": {}}
    async with (
        carried.running(None),
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
    ):
        accept = {"accept": "application/json, text/event-stream"}

        async def sent(method: str, params: Any, **headers: str) -> httpx2.Response:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return await http.post("/mcp", json=message, headers={**accept, **named})

        info = {"name": "c", "version": "1"}
        opened = await sent("initialize", {**meta, "clientInfo": info})
        mine = {"mcp_session_id": opened.headers["mcp-session-id"], "mcp_protocol_version": version}
        await sent("tools/call", {"name": "put", "arguments": {"value": "mine"}}, **mine)
        own = await sent("tools/call", {"name": "get", "arguments": {}}, **mine)
        modern = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": info,
        }
        other = await sent(
            "tools/call",
            {"name": "get", "arguments": {}, "_meta": modern},
            **{**mine, "mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "get"},
        )
    assert "mine" in own.text, own.text
    assert other.status_code == 200, other.text
    assert "mine" not in other.text, other.text
    assert "None" in other.text, other.text


async def test_disabled_components_stay_hidden() -> None:
    server = FastMCP("shop")

    @server.tool(tags={"internal"})
    def hidden() -> str:
        return "hidden"

    @server.tool
    def shown() -> str:
        return "shown"

    server.disable(tags={"internal"})
    async with Client(carry(server)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["shown"]


async def test_a_parked_handler_runs_its_body_once() -> None:
    server, begun = FastMCP("shop"), []

    @server.tool
    async def refund(ctx: Context) -> str:
        begun.append("begun")
        await ctx.set_state("kept", "x", serializable=False)
        answer = await ctx.elicit("Refund?", Confirm)
        await ctx.report_progress(1, 1)
        return f"{answer.action} {await ctx.get_state('kept')}"

    async with Client(carry(server, resume="parked"), elicit=yes) as client:
        assert (await client.call_tool("refund")).content[0].text == "accept x"
    assert begun == ["begun"]


async def test_a_template_takes_no_path_that_breaks_out() -> None:
    server = FastMCP("shop")

    @server.resource("files://{path*}")
    def file(path: str) -> str:
        return path

    async with Client(carry(server)) as client:
        assert (await client.read_resource("files://a/b")).contents[0].text == "a/b"
        error = await failure(client.read_resource("files://a/..%2F..%2Fetc"))
    assert error.code == -32602, error


async def test_a_version_that_is_too_old_is_told() -> None:
    with mock.patch.object(importlib.metadata, "version", return_value="3.9.0"):
        said = refusal(FastMCP("shop"))
    assert said.startswith("`ekiden run` needs fastmcp 4.1 or later, before 5, and 3.9.0 is too old"), said


async def test_this_version_has_all_parts_that_are_used() -> None:
    assert parts.missing_carried_parts(FastMCP("shop")) == []


async def test_a_part_that_has_moved_is_named() -> None:
    server = FastMCP("shop")
    del server._mask_error_details
    said = refusal(server)
    assert "has no FastMCP._mask_error_details" in said, said


async def test_a_missing_argument_of_a_prompt_is_named() -> None:
    server = FastMCP("shop")

    @server.prompt
    def letter(name: str) -> str:
        return name

    async with Client(carry(server)) as client:
        error = await failure(client.get_prompt("letter"))
    assert (error.code, error.message) == (-32602, "Missing required arguments: name"), error


def main() -> None:
    outcomes: dict[str, str | None] = {}
    for name, case in list(globals().items()):
        if name.startswith("test_") and inspect.iscoroutinefunction(case):
            try:
                asyncio.run(asyncio.wait_for(case(), 30))
                outcomes[name] = None
            except Exception:
                outcomes[name] = traceback.format_exc()
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
