"""Extensions of mounted servers, and pages for apps: clients of the server around them have them, too."""

from typing import Any, Literal

import pytest

from ekiden import (
    CallNext,
    Client,
    Complete,
    Context,
    Outcome,
    RegistrationError,
    Request,
    Server,
    ServerError,
)
from ekiden.extensions import (
    ClientExtension,
    Extension,
    ExtensionContext,
    ExtensionResult,
    Interrupted,
    Skills,
)
from ekiden.gateway import proxy
from tests.serving import soon

NAME = "com.example/receipts"
UI = "io.modelcontextprotocol/ui"
Mode = Literal["modern", "legacy"]


def _receipts(lost: list[int] | None = None) -> Extension:
    """A call is answered with a receipt, which is redeemed; as in the documentation."""
    extension = Extension(NAME, settings={"currency": "EUR"}, result_types=["receipt"])
    goods: dict[int, dict[str, Any]] = {}

    @extension.method("receipts/redeem")
    async def redeem(number: int, ctx: ExtensionContext) -> dict[str, Any]:
        return goods.pop(number)

    @extension.method("receipts/count")
    def count() -> dict[str, int]:
        return {"count": len(goods)}

    @extension.notification("notifications/receipts/lost")
    async def lose(number: int) -> None:
        if lost is not None:
            lost.append(number)

    @extension.intercept(methods=["tools/call"])
    async def hand_out(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        if NAME not in request.meta.capabilities.get("extensions", {}) or not isinstance(outcome, Complete):
            return outcome
        goods[len(goods) + 1] = outcome.as_dict()
        return ExtensionResult({"number": len(goods)}, result_type="receipt")

    return extension


def _billing(*extensions: Extension, name: str = "billing") -> Server:
    server = Server(name, extensions=extensions)
    server.add_tool(lambda: "paid", name="pay")
    return server


def _nested(inner: Server) -> Server:
    middle, outer = Server("middle"), Server("outer")
    middle.mount(inner, prefix="billing")
    outer.mount(middle, prefix="middle")
    return outer


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_methods_and_notifications_of_a_mounted_server_are_taken(mode: Mode) -> None:
    lost: list[int] = []
    async with Client(_nested(_billing(_receipts(lost))), mode=mode) as client:
        assert client.server_extension(NAME) == {"currency": "EUR"}
        assert (await soon(client.request("receipts/count", {})))["count"] == 0
        await client.notify("notifications/receipts/lost", {"number": 7})
        assert (await soon(client.request("receipts/count", {})))["count"] == 0
    assert lost == [7]


async def test_a_result_of_an_own_type_keeps_it_through_servers_around() -> None:
    wallet, numbers = ClientExtension(NAME), []

    @wallet.result("receipt")
    async def pick_up(call: Interrupted) -> dict[str, Any]:
        numbers.append(call.result["number"])
        return await call.request("receipts/redeem", {"number": call.result["number"]})

    async with Client(_nested(_billing(_receipts())), extensions=[wallet]) as client:
        result: Any = await soon(client.call_tool("middle_billing_pay"))
    assert (result.content[0].text, numbers) == ("paid", [1])


def test_an_extension_that_two_servers_have_is_refused_and_mounts_nothing() -> None:
    outer = Server("outer")
    outer.mount(_billing(_receipts()), prefix="a")
    with pytest.raises(RegistrationError, match=f"extension '{NAME}' is registered already"):
        outer.mount(_billing(_receipts(), name="other"), prefix="b")
    taken = Extension("com.example/other")
    taken.method("receipts/count")(lambda: None)
    with pytest.raises(RegistrationError, match=f"'{NAME}' has the method 'receipts/count' already"):
        outer.mount(_billing(taken, name="third"), prefix="c")
    assert [tool.key for tool in outer.endpoint.registry.tools] == ["a_pay"]


async def test_one_server_with_an_extension_can_be_mounted_twice() -> None:
    outer, inner = Server("outer"), _billing(_receipts())
    outer.mount(inner, prefix="a")
    outer.mount(inner, prefix="b")
    async with Client(outer) as client:
        assert (await soon(client.request("receipts/count", {})))["count"] == 0


async def test_what_only_is_declared_may_come_from_several_servers() -> None:
    outer = Server("outer")
    for name in ("a", "b"):
        outer.mount(_billing(Extension(UI), name=name), prefix=name)
    async with Client(outer) as client:
        assert client.server_extension(UI) == {}


async def test_a_method_that_is_not_for_sessions_is_not_in_the_server_around_either() -> None:
    extension = Extension(NAME, sessions=False)
    extension.method("receipts/count")(lambda: None)
    async with Client(_nested(_billing(extension)), mode="legacy") as client:
        assert client.server_extension(NAME) is None
        with pytest.raises(ServerError, match="Method not found"):
            await soon(client.request("receipts/count", {}))


async def test_skills_of_a_mounted_server_are_not_offered() -> None:
    skills = Skills()
    skills.add("greeting", description="How to greet.", instructions="Say the name.")
    async with Client(_nested(_billing(skills))) as client:
        assert client.server_extension("io.modelcontextprotocol/skills") is None
        (resource,) = await soon(client.list_resources())
        assert resource.uri == "middle+billing+skill://greeting/SKILL.md"


# Pages for apps


def _with_page() -> Server:
    server = Server("charts", extensions=[Extension(UI)])

    @server.tool(meta={"ui": {"resourceUri": "ui://chart/view.html", "visibility": ["model"]}, "other": 1})
    async def chart(ctx: Context[Any]) -> str:
        return str(UI in ctx.meta.capabilities.get("extensions", {}))

    @server.resource("ui://chart/view.html", mime_type="text/html;profile=mcp-app")
    def view() -> str:
        return "<p>chart</p>"

    @server.resource("ui://chart/{kind}")
    def kinds(kind: str) -> str:
        return kind

    return server


@pytest.mark.parametrize("through", ["mounted", "proxy"])
async def test_the_page_of_a_tool_is_found_where_the_tool_says(through: str) -> None:
    inner = _with_page()
    outer = _nested(inner if through == "mounted" else proxy(inner, name="charts"))
    async with Client(outer, extensions=[ClientExtension(UI)]) as client:
        assert client.server_extension(UI) == {}
        (tool,) = await soon(client.list_tools())
        (resource,) = await soon(client.list_resources())
        (template,) = await soon(client.list_resource_templates())
        page = "ui://middle/billing/chart/view.html"
        assert tool.meta == {"ui": {"resourceUri": page, "visibility": ["model"]}, "other": 1}
        assert (resource.uri, template.uri_template) == (page, "ui://middle/billing/chart/{kind}")
        read: Any = await soon(client.read_resource(page))
        assert (read.contents[0].uri, read.contents[0].text) == (page, "<p>chart</p>")
        other: Any = await soon(client.read_resource("ui://middle/billing/chart/pie"))
        assert other.contents[0].text == "pie"
        result: Any = await soon(client.call_tool("middle_billing_chart"))
        assert result.content[0].text == "True"
