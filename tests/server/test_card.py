"""The server card (SEP-2127): what it says, and how it is served."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from ekiden import Auth, Principal, Server, ServerCard, StaticTokens, UsageError
from tests.serving import PATIENCE, post, request, served, spawned

CARD = ServerCard(name="com.example/weather", description="Forecasts", url="https://example.com/mcp")
SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
VERSIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


def weather(card: ServerCard | None = CARD, **options: Any) -> Server:
    return Server("weather", version="1.2.3", title="Weather", card=card, **options)


async def get(url: str, method: str = "GET", **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        return await client.request(method, url, headers={k.replace("_", "-"): v for k, v in headers.items()})


async def test_a_card_tells_who_the_server_is_and_where() -> None:
    async with served(weather(website_url="https://example.com")) as base:
        response = await get(f"{base}/mcp/server-card", accept="application/mcp-server-card+json")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/mcp-server-card+json"
    assert response.json() == {
        "$schema": SCHEMA,
        "name": "com.example/weather",
        "version": "1.2.3",
        "description": "Forecasts",
        "title": "Weather",
        "websiteUrl": "https://example.com",
        "remotes": [
            {
                "type": "streamable-http",
                "url": "https://example.com/mcp",
                "supportedProtocolVersions": VERSIONS,
            }
        ],
    }


async def test_all_that_a_card_may_have() -> None:
    card = ServerCard(
        name="com.example/weather",
        url="https://example.com/mcp",
        repository={"url": "https://example.com/git", "source": "gitea"},
        headers=[{"name": "X-Tenant", "isRequired": True}],
        meta={"com.example/x": 1},
    )
    async with served(weather(card, description="Of the server")) as base:
        found = (await get(f"{base}/mcp/server-card")).json()
    assert found["description"] == "Of the server"
    assert found["repository"]["source"] == "gitea"
    assert found["remotes"][0]["headers"] == [{"name": "X-Tenant", "isRequired": True}]
    assert found["_meta"] == {"com.example/x": 1}


async def test_without_a_card_there_is_none() -> None:
    async with served(weather(None)) as base:
        for path in ("/mcp/server-card", "/.well-known/ai-catalog.json"):
            assert (await get(base + path)).status_code == 404


async def test_the_catalog_of_the_site_names_the_card() -> None:
    async with served(weather()) as base:
        response = await get(f"{base}/.well-known/ai-catalog.json")
    assert response.headers["content-type"] == "application/ai-catalog+json"
    assert response.json() == {
        "specVersion": "1.0",
        "entries": [
            {
                "identifier": "urn:air:example.com:mcp:weather",
                "type": "application/mcp-server-card+json",
                "url": "https://example.com/mcp/server-card",
            }
        ],
    }


async def test_a_server_that_does_not_know_its_url_has_the_card_in_the_catalog() -> None:
    card = ServerCard(name="com.example/weather", description="Forecasts")
    async with served(weather(card)) as base:
        found = (await get(f"{base}/mcp/server-card")).json()
        (entry,) = (await get(f"{base}/.well-known/ai-catalog.json")).json()["entries"]
    assert "remotes" not in found
    assert entry["data"] == found


async def test_the_url_is_by_default_that_of_auth_and_a_card_needs_no_token() -> None:
    auth = Auth("https://example.org/mcp", verifier=StaticTokens({"t": Principal("zoe")}))
    card = ServerCard(name="com.example/weather", description="Forecasts")
    async with served(weather(card, auth=auth)) as base:
        response = await get(f"{base}/mcp/server-card")
        assert (await post(base, request("server/discover"))).status_code == 401
    assert response.json()["remotes"][0]["url"] == "https://example.org/mcp"


@pytest.mark.parametrize("origins", [None, ["https://app.example"]])
async def test_pages_of_every_origin_may_read_it(origins: Any) -> None:
    async with served(weather(), allowed_origins=origins) as base:
        for origin in ("https://app.example", "https://elsewhere.example"):
            response = await get(f"{base}/mcp/server-card", origin=origin)
            assert response.status_code == 200
            assert response.headers.get_list("access-control-allow-origin") == ["*"]
            assert response.headers["access-control-expose-headers"] == "ETag"
            asked = await get(
                f"{base}/mcp/server-card",
                "OPTIONS",
                origin=origin,
                access_control_request_method="GET",
                access_control_request_headers="if-none-match",
            )
            assert asked.status_code == 204
            assert "If-None-Match" in asked.headers["access-control-allow-headers"]
        refused = await post(base, request("server/discover"), origin="https://elsewhere.example")
        assert refused.status_code == 403


async def test_a_host_that_is_not_allowed_is_refused() -> None:
    async with served(weather()) as base:
        assert (await get(f"{base}/mcp/server-card", host="evil.example")).status_code == 421


async def test_a_card_that_has_not_changed_is_not_sent_again() -> None:
    async with served(weather()) as base:
        first = await get(f"{base}/mcp/server-card")
        assert first.headers["cache-control"] == "public, max-age=3600"
        tag = first.headers["etag"]
        for known in (tag, f'"x", W/{tag}', "*"):
            again = await get(f"{base}/mcp/server-card", if_none_match=known)
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert (await get(f"{base}/mcp/server-card", if_none_match='"x"')).status_code == 200


async def test_other_methods_are_not_allowed() -> None:
    async with served(weather()) as base:
        response = await get(f"{base}/mcp/server-card", "POST")
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


@pytest.mark.parametrize(("path", "at"), [(None, "/tools/server-card"), ("/mcp", "/tools/mcp/server-card")])
async def test_a_mounted_server_serves_its_card_below_its_path(path: str | None, at: str) -> None:
    server = weather()
    application = Starlette(routes=[Mount("/tools", server.asgi(path=path))], lifespan=server.running)
    async with served(application, mounted=True) as base:
        assert (await get(base + at)).json()["name"] == "com.example/weather"
        there = "/tools/mcp" if path else "/tools/"
        assert (await post(base, request("server/discover"), path=there)).status_code == 200


SERVER = """
from ekiden import Server, ServerCard
card = ServerCard(name="com.example/weather", description="Forecasts")
server = Server("weather", card=card)
"""


@pytest.mark.parametrize("how", ["server.run", "ekiden run"])
async def test_it_is_served_however_the_server_is_run(how: str, tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(SERVER)
    command = ["ekiden", "run", str(tmp_path / "weather.py"), "--port"]
    source = f"import sys\nfrom ekiden.cli.main import main\nsys.argv = [*{command!r}, sys.argv[1]]\nmain()"
    if how == "server.run":
        source = f"import sys\n{SERVER}\nserver.run(port=int(sys.argv[1]))"
    async with spawned(source) as process, asyncio.timeout(PATIENCE):
        assert (await get(f"{process.base}/mcp/server-card")).json()["name"] == "com.example/weather"


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ({"name": "weather"}, "com.example/weather"),
        ({"name": "com.example/a/b"}, "com.example/weather"),
        ({"name": "com.example/" + "a" * 200}, "com.example/weather"),
        ({"description": "x" * 101}, "a description of 1 to 100 characters"),
        ({"description": None}, "a description of 1 to 100 characters"),
        ({"url": "example.com/mcp"}, "must be a full http"),
        ({"repository": {"url": "x"}}, "needs a `url` and a `source`"),
        ({"headers": [{"value": "x"}], "url": "https://x.example"}, "every header has a `name`"),
        ({"meta": {"x": object()}}, "must be JSON"),
    ],
)
def test_a_card_that_breaks_the_schema_is_refused(card: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        weather(ServerCard(**{"name": "com.example/weather", "description": "x", **card}))
