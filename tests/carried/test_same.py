"""The same requests to an `MCPServer` by itself and carried: the official client must get the same."""

from typing import Any, Literal

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.apps import Apps
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

from ekiden.integrations.carried import carry
from tests.serving import served, soon

Mode = Literal["auto", "legacy"]


class Price(BaseModel):
    cents: int
    unit: Literal["EUR", "JPY"] = "EUR"


def empty() -> MCPServer[Any]:
    return MCPServer("shop", version="7")


def full() -> MCPServer[Any]:
    apps = Apps()
    apps.add_html_resource("ui://prices", "<p>prices</p>", name="prices")

    @apps.tool(resource_uri="ui://prices")
    def shown() -> str:
        return "shown"

    server = MCPServer("shop", version="7", extensions=[apps])

    @server.tool()
    def price(cents: int, unit: Literal["EUR", "JPY"] = "EUR", more: list[Price] | None = None) -> Price:
        """What something costs."""
        return Price(cents=cents, unit=unit)

    @server.tool()
    def nothing() -> None:
        """Give nothing."""

    @server.tool(structured_output=False)
    def mixed() -> list[Any]:
        return ["text", Image(data=b"png", format="png"), {"key": [1, None]}]

    @server.tool()
    def refused() -> str:
        raise ToolError("not today")

    @server.tool()
    def crashed() -> str:
        raise RuntimeError("a secret")

    @server.resource("shop://hours", mime_type="application/json")
    def hours() -> dict[str, int]:
        return {"open": 9}

    @server.resource("shop://orders/{number}")
    def order(number: str) -> str:
        return f"order {number}"

    @server.prompt(title="A letter")
    def letter(name: str, kind: str = "short") -> list[types.PromptMessage]:
        content = types.TextContent(type="text", text=f"{kind}, {name}")
        return [types.PromptMessage(role="assistant", content=content)]

    return server


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("price", {"cents": 5}),
    ("price", {"cents": "5", "unit": "JPY"}),
    ("price", {"cents": 5, "more": [{"cents": 1}], "unknown": True}),
    ("price", {}),
    ("price", {"cents": "five"}),
    ("price", {"cents": 5, "unit": "USD"}),
    ("nothing", {}),
    ("mixed", {}),
    ("refused", {}),
    ("crashed", {}),
    ("shown", {}),
]


def _dumped(model: BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def _seen(client: Client, is_full: bool) -> dict[str, Any]:
    """What a client gets for every list and, of the server that has some, for every kind of request."""
    requests: dict[str, Any] = {
        "tools": client.list_tools(),
        "prompts": client.list_prompts(),
        "resources": client.list_resources(),
        "templates": client.list_resource_templates(),
    }
    if is_full:
        requests |= {f"{name} {given}": client.call_tool(name, given) for name, given in CALLS}
        for uri in ("shop://hours", "shop://orders/7", "ui://prices"):
            requests[uri] = client.read_resource(uri)
        requests["letter"] = client.get_prompt("letter", {"name": "Aiko"})
    seen: dict[str, Any] = {"extensions": client.server_capabilities.extensions}
    for what, request in requests.items():
        try:
            seen[what] = _dumped(await soon(request))
        except MCPError as error:
            seen[what] = _dumped(error.error)
    return seen


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("make", [empty, full])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_carried_server_answers_as_it_does_by_itself(make: Any, mode: Mode) -> None:
    async with served(make().streamable_http_app()) as base, Client(f"{base}/mcp", mode=mode) as client:
        by_itself = await _seen(client, make is full)
    async with served(carry(make())) as base, Client(f"{base}/mcp", mode=mode) as client:
        carried = await _seen(client, make is full)
    assert carried == by_itself
