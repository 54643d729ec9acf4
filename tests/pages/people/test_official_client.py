"""The official Python client, of both eras, with no capabilities and with URL mode: end to end over HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client

from ekiden import Context, Pages, Server
from scripts.ports import free_port
from tests.pages.people.shop import KEYS, Approval
from tests.serving import served


def bank(tmp_path: Path, port: int, ran: list[str]) -> Server:
    """A server whose pages are where it is served."""
    server = Server(
        "bank",
        keys=KEYS,
        store=f"sqlite:///{tmp_path / 'bank.db'}",
        pages=Pages(f"http://127.0.0.1:{port}", wait_seconds=10.0),
    )

    def note(what: str) -> None:
        ran.append(what)

    @server.tool
    async def pay(ctx: Context, amount: int) -> str:
        """Pay a bill."""
        await ctx.step(note, "checked", key="check")
        answer = await ctx.elicit(f"Pay {amount}?", Approval)
        if answer.data is None or not answer.data.approve:
            return f"not paid: {answer.action}"
        await ctx.step(note, f"paid {amount}", key="pay")
        return f"paid {amount}: {answer.data.reason}"

    return server


async def answer_at(link: str, reason: str) -> None:
    """What a browser does: open the page, and send the form."""
    async with httpx2.AsyncClient(timeout=60.0) as browser:
        page = await browser.get(link)
        assert page.status_code == 200, page.text
        code = page.text.partition('name="form_code" value="')[2].partition('"')[0]
        form = {"form_code": code, "action": "accept", "/approve": "true", "/reason": reason}
        sent = await browser.post(link, data=form, headers={"origin": link.partition("/ask/")[0]})
        assert sent.status_code == 303, sent.text


def words(result: Any) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_without_capabilities_gets_words_and_goes_on_with_the_same_call(
    tmp_path: Path, mode: str
) -> None:
    ran: list[str] = []
    port = free_port()
    server = bank(tmp_path, port, ran)
    async with served(server, port=port) as base, Client(f"{base}/mcp", mode=mode) as client:
        told = words(await client.call_tool("pay", {"amount": 40}))
        assert "Pay 40?" in told
        assert "again with exactly the same arguments" in told
        link = next(word for word in told.split() if word.startswith(f"{base}/ask/"))
        going_on = asyncio.ensure_future(client.call_tool("pay", {"amount": 40}))
        await answer_at(link, "due")
        assert words(await going_on) == "paid 40: due"
        assert ran == ["checked", "paid 40"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_client_with_url_mode_is_sent_to_the_page(tmp_path: Path, mode: str, action: Any) -> None:
    ran: list[str] = []
    asked: list[types.ElicitRequestURLParams] = []
    answering: list[asyncio.Future[None]] = []
    port = free_port()
    server = bank(tmp_path, port, ran)

    @server.middleware
    async def url_mode_only(request: Any, call_next: Any) -> Any:
        if request.meta.capabilities.get("elicitation"):
            request.meta.capabilities["elicitation"] = {"url": {}}
        return await call_next(request)

    async def on_question(_: Any, params: Any) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        asked.append(params)
        if action == "accept":
            answering.append(asyncio.ensure_future(answer_at(params.url, "by hand")))
        return types.ElicitResult(action=action)

    async with (
        served(server, port=port) as base,
        Client(f"{base}/mcp", mode=mode, elicitation_callback=on_question) as client,
    ):
        done = words(await client.call_tool("pay", {"amount": 40}))
    await asyncio.gather(*answering)
    assert [(question.mode, question.message) for question in asked] == [("url", "Pay 40?")]
    assert done == ("paid 40: by hand" if action == "accept" else "not paid: decline")
    assert ran == (["checked", "paid 40"] if action == "accept" else ["checked"])
