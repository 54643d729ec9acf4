"""A real Chromium: a page of an allowed origin calls tools of a server elsewhere, another page cannot."""

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field
from selenium.webdriver import Chrome

from ekiden import Context, HttpRequest, HttpResponse, Server, StatusError
from scripts.chromium import running_chromium
from tests.serving import served

SCRIPT = Path(__file__).with_name("page.js").read_text()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Generator[Chrome, None, None]:
    with running_chromium() as found:
        yield found


def called(seen: list[str | None]) -> Server:
    """The server that pages call."""
    server = Server("called", keys=[b"k" * 32])

    @server.middleware
    async def look(request: Any, call_next: Any) -> Any:
        seen.append(request.header("authorization"))
        if request.name == "limited":
            raise StatusError(429, "Too many requests", headers={"Retry-After": "7"})
        return await call_next(request)

    @server.tool
    async def order(
        ctx: Context, tenant: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Tenant"})]
    ) -> str:
        pieces = await ctx.elicit("How many?", int)
        return f"{pieces.data} for {tenant}"

    @server.tool
    async def slowly(ctx: Context) -> str:
        await ctx.info("on the way")
        return "there"

    @server.tool
    async def limited() -> str:
        return "never"

    return server


def page() -> Server:
    """Something that serves a page, from an origin of its own."""
    server = Server("page")

    @server.route("/")
    async def index(request: HttpRequest) -> HttpResponse:
        return HttpResponse("<!doctype html><title>page</title>", headers={"content-type": "text/html"})

    return server


async def run(browser: Chrome, origin: str, url: str) -> dict[str, Any]:
    """What the script finds when a page of this origin runs it."""
    await asyncio.to_thread(browser.get, f"{origin}/")
    found: dict[str, Any] = await asyncio.to_thread(browser.execute_async_script, SCRIPT, url)
    return found


async def test_a_page_of_an_allowed_origin_calls_a_tool_of_another_origin_over_two_rounds(
    browser: Chrome,
) -> None:
    seen: list[str | None] = []
    async with served(page()) as origin, served(called(seen), allowed_origins=[origin]) as base:
        assert await run(browser, origin, f"{base}/mcp") == {
            "asked": "How many?",
            "ordered": "3 for eu",
            "stream": True,
            "session": True,
            "limited": [429, "7"],
        }
    assert set(seen) == {"Bearer a-token-of-the-page"}


async def test_a_page_of_another_origin_can_neither_call_nor_read(browser: Chrome) -> None:
    seen: list[str | None] = []
    allowed = {"allowed_origins": ["https://app.example"]}
    async with served(page()) as origin, served(called(seen), **allowed) as base:
        found = await run(browser, origin, f"{base}/mcp")
    assert found == {"error": "TypeError: Failed to fetch"}
    assert seen == [], "the preflight was refused, so that nothing was sent"
