"""What a browser is told, so that pages of allowed origins can call and read, and no others."""

from typing import Any

import httpx2
import pytest

from ekiden import Context, Rate, RateLimit, Server
from tests.eras.old_client import hello
from tests.serving import PATIENCE, call, headers_for, served

APP = "https://app.example"
OPEN = {"allowed_origins": [APP]}
BOTH = pytest.mark.parametrize("mounted", [False, True], ids=["our own HTTP", "any ASGI server"])


def server() -> Server:
    made = Server("cors", keys=[b"k" * 32])

    @made.tool
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    @made.tool
    async def slowly(ctx: Context) -> str:
        await ctx.info("on the way")
        return "there"

    @made.route("/page")
    async def page(request: Any) -> str:
        return "page"

    return made


async def send(base: str, method: str, path: str = "/mcp", **options: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        return await client.request(method, f"{base}{path}", **options)


def preflight(headers: str, origin: str = APP, method: str = "POST") -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": headers,
    }


@BOTH
async def test_a_preflight_is_told_which_headers_of_the_protocol_it_may_send(mounted: bool) -> None:
    wished = "authorization,content-type,mcp-method,mcp-name,mcp-param-tenant_id,mcp-protocol-version,x-evil"
    async with served(server(), mounted=mounted, **OPEN) as base:
        told = await send(base, "OPTIONS", headers=preflight(wished))
        assert (told.status_code, told.content) == (204, b"")
        assert told.headers["access-control-allow-origin"] == APP
        assert "POST" in told.headers["access-control-allow-methods"]
        assert told.headers["access-control-allow-headers"] == wished.removesuffix(",x-evil").replace(
            ",", ", "
        )
        assert "Origin" in told.headers["vary"]
        assert "access-control-allow-credentials" not in told.headers


@BOTH
async def test_a_page_can_read_results_errors_streams_sessions_and_other_pages(mounted: bool) -> None:
    async with served(server(), mounted=mounted, **OPEN) as base:
        result, stream = call("greet", {"name": "Ada"}), call("slowly")
        modern = [(message, headers_for(message)) for message in (result, stream)]
        old = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        replies = [
            *[await send(base, "POST", json=body, headers=head | {"origin": APP}) for body, head in modern],
            await send(base, "POST", json=hello(), headers=old | {"origin": APP}),
            await send(base, "POST", content="{", headers=old | {"origin": APP}),
            await send(base, "POST", content="text", headers={"content-type": "text/plain", "origin": APP}),
            await send(base, "GET", headers={"origin": APP}),
            await send(base, "GET", "/page", headers={"origin": APP}),
            await send(base, "GET", "/nowhere", headers={"origin": APP}),
        ]
        assert [reply.status_code for reply in replies] == [200, 200, 200, 400, 415, 405, 200, 404]
        assert "mcp-session-id" in replies[2].headers
        for reply in replies:
            assert reply.headers.get_list("access-control-allow-origin") == [APP], reply.request
            assert "Mcp-Session-Id" in reply.headers["access-control-expose-headers"]
            assert "WWW-Authenticate" in reply.headers["access-control-expose-headers"]
            assert reply.headers["vary"] == "Origin"


@BOTH
async def test_other_origins_and_other_clients_are_told_nothing(mounted: bool) -> None:
    message = call("greet", {"name": "Ada"})
    async with served(server(), mounted=mounted, **OPEN) as base:
        foreign = await send(
            base, "POST", json=message, headers=headers_for(message) | {"origin": "https://evil.example"}
        )
        asked = await send(base, "OPTIONS", headers=preflight("content-type", "https://evil.example"))
        plain = await send(base, "POST", json=message, headers=headers_for(message))
    assert [reply.status_code for reply in (foreign, asked, plain)] == [403, 403, 200]
    for reply in (foreign, asked, plain):
        assert not [name for name in reply.headers if name.startswith("access-control")]


@BOTH
@pytest.mark.parametrize("host", ["127.0.0.1", "evil.example", "10.0.0.7:8000"])
@pytest.mark.parametrize("path", ["/mcp", "/page", "/healthz", "/readyz", "/nothing"])
async def test_no_path_tells_a_page_of_another_origin_that_it_may_call(
    path: str, host: str, mounted: bool
) -> None:
    async with served(server(), mounted=mounted, **OPEN) as base:
        for origin in ("https://evil.example", "null", f"{APP}.evil"):
            asked = {**preflight("authorization", origin), "host": host}
            for told in (
                await send(base, "OPTIONS", path, headers=asked),
                await send(base, "GET", path, headers={"origin": origin, "host": host}),
            ):
                assert told.status_code in (403, 421)
                assert not any(name.startswith("access-control-") for name in told.headers)


async def test_without_named_origins_there_is_no_cors() -> None:
    message = call("greet", {"name": "Ada"})
    local = {"origin": "http://localhost:3000"}
    async with served(server()) as base:
        reply = await send(base, "POST", json=message, headers=headers_for(message) | local)
        assert reply.status_code == 200, "pages of allowed hosts may call, as before"
        assert "access-control-allow-origin" not in reply.headers
        asked = await send(base, "OPTIONS", headers=preflight("content-type", "http://localhost:3000"))
        assert asked.status_code == 405


async def test_every_origin_can_be_allowed() -> None:
    async with served(server(), allowed_origins=["*"]) as base:
        told = await send(base, "OPTIONS", headers=preflight("content-type", "https://anybody.example"))
        assert told.headers["access-control-allow-origin"] == "*"


async def test_a_page_can_read_how_long_to_wait() -> None:
    made = server()
    made.middleware(RateLimit(per_address=Rate(1, seconds=60)))
    message = call("greet", {"name": "Ada"})
    async with served(made, **OPEN) as base:
        head = headers_for(message) | {"origin": APP}
        replies = [await send(base, "POST", json=message, headers=head) for _ in range(2)]
    assert [reply.status_code for reply in replies] == [200, 429]
    assert replies[1].headers["access-control-allow-origin"] == APP
    assert "Retry-After" in replies[1].headers["access-control-expose-headers"]
