"""What is said and refused when an `MCPServer` is carried, and what its handlers can rely on."""

import asyncio
import importlib.metadata
from typing import Any

import mcp_types as types
import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.request_state import RequestStateBoundary
from pydantic import AnyHttpUrl, BaseModel

from ekiden import Client, ProtocolError, UsageError
from ekiden.integrations.carried import carry, is_foreign
from ekiden.integrations.inside import official_parts as parts
from tests.serving import PATIENCE, soon


class Confirm(BaseModel):
    ok: bool


class Verifier:
    """Lets nobody in."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return None


class Counting(Extension):
    """An extension that sees every call of a tool."""

    identifier = "org.example/counting"

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
        self.seen.append(params.name)
        return await call_next(ctx)


class Asking(Extension):
    """An extension with a method."""

    identifier = "org.example/asking"

    def methods(self) -> list[MethodBinding]:
        return [MethodBinding("asking/ask", types.RequestParams, passing)]


async def passing(ctx: Any, call_next: Any) -> Any:
    return await call_next(ctx)


async def yes(params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"ok": True})


def text(result: Any) -> str:
    return str(result.content[0].text)


def protected() -> MCPServer[Any]:
    url = AnyHttpUrl("https://example.org")
    settings = AuthSettings(issuer_url=url, resource_server_url=url, validate_token_resource=True)
    return MCPServer("shop", token_verifier=Verifier(), auth=settings)


def test_what_is_carried_is_known_by_its_class() -> None:
    class Mine(MCPServer[Any]):
        """A class of the author's own."""

    assert is_foreign(MCPServer("shop"))
    assert is_foreign(Mine("shop"))
    assert not is_foreign(object())


def test_a_plain_server_leaves_nothing_behind() -> None:
    assert carry(MCPServer("shop"), strict=True).left_behind == []


def test_what_cannot_be_carried_is_named_line_by_line() -> None:
    server = MCPServer("shop", middleware=[passing], extensions=[Counting(), Asking()])

    @server.custom_route("/hello", methods=["GET"])
    async def hello(request: Any) -> Any: ...

    assert carry(server, without_middleware=True).left_behind == [
        "middleware passing: calls do not pass through it",
        "custom route /hello: it is not served",
        "extension org.example/asking: it is not declared, and its methods are not served",
    ]
    with pytest.raises(UsageError, match=r"--strict: not all of shop can be carried:\n  middleware passing"):
        carry(server, strict=True)


def test_a_server_with_middleware_is_refused_unless_its_author_says_so() -> None:
    class Checking:
        async def __call__(self, ctx: Any, call_next: Any) -> Any:
            raise AssertionError

    server = MCPServer("shop", middleware=[Checking(), passing])
    with pytest.raises(UsageError, match=r"has middleware \(.*Checking, passing\), which is not carried"):
        carry(server)
    assert len(carry(server, without_middleware=True).left_behind) == 2


async def test_interceptors_of_an_extension_see_the_calls() -> None:
    counting = Counting()
    server = MCPServer("shop", extensions=[counting])

    @server.tool()
    async def plain() -> str:
        return "plain"

    carried = carry(server, strict=True)
    async with Client(carried) as client:
        assert client.server_extension("org.example/counting") == {}
        assert text(await soon(client.call_tool("plain"))) == "plain"
    assert counting.seen == ["plain"]


def test_a_server_with_an_auth_provider_is_refused_unless_its_author_says_so() -> None:
    with pytest.raises(UsageError, match=r"has an auth provider \(Verifier\), which is not carried"):
        carry(protected())
    carried = carry(protected(), without_auth=True)
    assert carried.left_behind == ["auth provider Verifier: nobody is asked who they are"]
    with pytest.raises(UsageError, match="--strict"):
        carry(protected(), without_auth=True, strict=True)


@pytest.mark.parametrize("resume", ["parked", "replay"])
async def test_a_parked_handler_runs_its_body_once(resume: Any) -> None:
    server, begun = MCPServer("shop"), list[str]()

    @server.tool()
    async def refund(ctx: Context[Any]) -> str:
        begun.append("begun")
        answer = await ctx.elicit("Refund?", Confirm)
        return answer.action

    async with Client(carry(server, resume=resume), elicit=yes) as client:
        assert text(await soon(client.call_tool("refund"))) == "accept"
    assert len(begun) == (1 if resume == "parked" else 2)


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_a_page_is_shown(mode: Any) -> None:
    server, shown = MCPServer("shop"), list[str]()

    @server.tool()
    async def sign_in(ctx: Context[Any]) -> str:
        answer = await ctx.elicit_url("Sign in", "https://example.org/login", "id-1")
        await ctx.session.send_elicit_complete("id-1")
        return answer.action

    async def open_page(params: Any) -> types.ElicitResult:
        shown.append(params.url)
        return types.ElicitResult(action="accept")

    async with Client(carry(server), elicit_url=open_page, mode=mode) as client:
        assert text(await soon(client.call_tool("sign_in"))) == "accept"
    assert shown == ["https://example.org/login"]


async def test_a_template_takes_no_path_that_breaks_out() -> None:
    server = MCPServer("shop")

    @server.resource("files://{+path}")
    def file(path: str) -> str:
        return path

    async with Client(carry(server)) as client:
        assert (await soon(client.read_resource("files://a/b"))).contents[0].text == "a/b"  # type: ignore[union-attr]
        with pytest.raises(ProtocolError, match="not found"):
            await soon(client.read_resource("files://a/../../etc"))


async def test_a_missing_argument_of_a_prompt_is_named() -> None:
    server = MCPServer("shop")

    @server.prompt()
    def letter(name: str) -> str:
        return name

    async with Client(carry(server)) as client:
        with pytest.raises(ProtocolError, match="Missing required arguments: name"):
            await soon(client.get_prompt("letter"))


async def test_a_changed_resource_is_told_to_those_who_listen() -> None:
    server = MCPServer("shop")

    @server.resource("shop://hours")
    def hours() -> str:
        return "nine to five"

    @server.tool()
    async def change(ctx: Context[Any]) -> str:
        await ctx.notify_resource_updated("shop://hours")
        return "changed"

    carried = carry(server)
    async with Client(carried) as client:
        changes = client.listen(uris=("shop://hours",))
        first = asyncio.ensure_future(anext(changes))
        async with asyncio.timeout(PATIENCE):
            while not first.done():  # Until the subscription is open, nobody hears of a change.
                await client.call_tool("change")
        assert first.result()["params"]["uri"] == "shop://hours"
        await changes.aclose()


def test_a_version_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "1.27.0")
    with pytest.raises(
        UsageError, match=r"`ekiden run` needs mcp 2.3 or later, before 3, and 1.27.0 is too old"
    ):
        carry(MCPServer("shop"))


def test_this_version_has_all_parts_that_are_used() -> None:
    server = MCPServer("shop")
    assert parts.missing_carried_parts(server, parts.low_level(server)) == []


@pytest.mark.parametrize("part", ["_token_verifier", "_subscriptions", "_custom_starlette_routes"])
def test_a_part_that_has_moved_is_named(part: str) -> None:
    server = MCPServer("shop")
    delattr(server, part)
    with pytest.raises(UsageError, match=f"has no MCPServer.{part}, which"):
        carry(server)


def test_a_boundary_that_is_gone_is_named() -> None:
    server = MCPServer("shop")
    server.middleware[:] = [each for each in server.middleware if not isinstance(each, RequestStateBoundary)]
    with pytest.raises(UsageError, match="has no RequestStateBoundary"):
        carry(server)
