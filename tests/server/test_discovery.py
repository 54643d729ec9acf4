import pytest
from mcp_types import Icon

from ekiden import CacheHint, Server
from tests.serving import ask, error_of, result_of


def full() -> Server:
    server = Server("s")

    @server.tool
    async def tool() -> str:
        return ""

    @server.prompt
    async def prompt(a: str) -> str:
        return ""

    @server.resource("a://b")
    async def resource() -> str:
        return ""

    @server.completion(prompt="prompt", argument="a")
    async def complete(value: str) -> list[str]:
        return []

    return server


async def test_a_server_declares_what_it_has() -> None:
    assert (await result_of(Server("s"), "server/discover"))["capabilities"] == {"logging": {}}
    assert (await result_of(full(), "server/discover"))["capabilities"] == {
        "logging": {},
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
    }


async def test_a_capability_that_comes_later_is_declared_later_and_stays() -> None:
    server = Server("s")
    assert "tools" not in (await result_of(server, "server/discover"))["capabilities"]

    @server.tool
    async def tool() -> str:
        return ""

    assert "tools" in (await result_of(server, "server/discover"))["capabilities"]
    server.remove_tool("tool")
    assert "tools" in (await result_of(server, "server/discover"))["capabilities"]
    assert (await result_of(server, "tools/list"))["tools"] == []


@pytest.mark.parametrize(
    "method",
    [
        "tools/list",
        "tools/call",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "completion/complete",
    ],
)
async def test_a_method_whose_capability_is_not_declared_is_not_found(method: str) -> None:
    assert (await error_of(Server("s"), method, {"name": "x"}))["code"] == -32601


async def test_discovery_says_versions_instructions_and_hints() -> None:
    server = Server("s", instructions="Be kind.", cache={"server/discover": CacheHint(9, "public")})
    assert await result_of(server, "server/discover") == {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"logging": {}},
        "instructions": "Be kind.",
        "ttlMs": 9,
        "cacheScope": "public",
    }


async def test_every_result_says_who_answered() -> None:
    icons = [Icon(src="https://example.com/i.png")]
    server = Server(
        "s", version="2", title="T", description="D", website_url="https://example.com", icons=icons
    )
    response = await ask(server, "server/discover")
    assert response["result"]["_meta"]["io.modelcontextprotocol/serverInfo"] == {
        "name": "s",
        "version": "2",
        "title": "T",
        "description": "D",
        "websiteUrl": "https://example.com",
        "icons": [{"src": "https://example.com/i.png"}],
    }
