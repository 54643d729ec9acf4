"""The page Calls: the list, a story, masking, and a call as a test that runs."""

import asyncio
import re
import sys
import types
from html import unescape
from typing import Any

import pytest

from ekiden import Context, Server
from ekiden.pages.desk.feed import Feed
from ekiden.testing import CallFailed, ScriptedClient
from tests.pages.browsing import Browser
from tests.pages.desk.opened import ONLY_LOOKS, links, opened, settled, shop, site_of
from tests.stories.telling import with_another_step_in_a_replay

ANSWERS = {"Send the receipt?": True, "Which size?": "large"}


async def test_an_empty_list_says_what_to_expect() -> None:
    async with opened() as (_, browser):
        seen = await browser.get("/calls")
        assert "No calls yet" in seen.words
        assert 'data-live="/live/calls?' in seen.text
        assert "Nothing fits" in (await browser.get("/calls?q=nothing")).words


async def test_a_call_is_listed_and_its_story_has_every_leg() -> None:
    async with opened() as (server, browser):
        await ScriptedClient(server, ANSWERS).call_tool("pay", {"amount": 5})
        await settled(server)
        seen = await browser.get("/calls")
        (path,) = links(seen.text, "/calls")
        assert "completed pay" in seen.words
        story = await browser.get(path)
    assert story.text.count('class="bar"') == 3
    for words in ("Leg 1 round 1", "Leg 3 round 3", "Send the receipt?", "Which size?", "answered"):
        assert words in story.words, words
    assert '"charged \\u003cb>"' not in story.text
    assert "charged &lt;b&gt;" in story.text
    assert "from the journal" in story.words
    assert "receipt 5" in story.words
    assert re.search(r"state of \d+ bytes went out", story.words)


async def test_calls_are_searched_and_filtered() -> None:
    async with opened() as (server, browser):
        await ScriptedClient(server, ANSWERS).call_tool("pay", {"amount": 5})
        await ScriptedClient(server).round("tools/call", {"name": "pay", "arguments": {"amount": 6}})
        await settled(server)
        assert len(links((await browser.get("/calls")).text, "/calls")) == 2
        waiting = await browser.get("/calls?state=waiting")
        (path,) = links(waiting.text, "/calls")
        assert "waits for an answer" in waiting.words
        found = await browser.get(f"/calls?q={path.rpartition('/')[2]}")
        assert links(found.text, "/calls") == [path]
        assert links((await browser.get("/calls?q=PA")).text, "/calls") != []
        fragment = await browser.get("/calls?q=pay", **{"x-ekiden-live": "1"})
        assert fragment.text.strip().startswith('<div id="rows">')


async def test_who_may_not_see_values_sees_sizes_only() -> None:
    async with opened(ONLY_LOOKS) as (server, browser):
        await ScriptedClient(server, ANSWERS).call_tool("pay", {"amount": 54321})
        await settled(server)
        (path,) = links((await browser.get("/calls")).text, "/calls")
        story = await browser.get(path)
    for secret in ("54321", "receipt", "Which size", "large", "charged"):
        assert secret not in story.text, secret
    assert "masked, " in story.words
    assert "Leg 3 round 3" in story.words


async def test_a_call_that_is_not_known_says_so() -> None:
    async with opened() as (_, browser):
        seen = await browser.get("/calls/nothing")
        assert seen.status == 404
        assert "only the newest are kept" in seen.words


def copied(page: str) -> str:
    found = re.search(r'<pre id="test-text"[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert found is not None
    return unescape(found[1])


async def run_copied(text: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("server")
    module.server = server
    monkeypatch.setitem(sys.modules, "server", module)
    names: dict[str, Any] = {}
    exec(compile(text, "copied.py", "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    await test()


async def test_a_copied_test_runs_and_notices_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (server, browser):
        await ScriptedClient(server, ANSWERS).call_tool("pay", {"amount": 5})
        await settled(server)
        (path,) = links((await browser.get("/calls")).text, "/calls")
        text = copied((await browser.get(path)).text)
    assert "async def test_pay_as_it_was_called" in text
    await run_copied(text, shop(), monkeypatch)
    changed = Server("shop", keys=[bytes(32)])

    @changed.tool
    async def pay(amount: int, ctx: Context) -> str:
        return "something else"

    with pytest.raises(AssertionError):
        await run_copied(text, changed, monkeypatch)


async def test_a_copied_test_of_a_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (server, browser):
        await ScriptedClient(server, {"Well?": True}, tasks=True).call_tool("retry", {})
        await settled(server)
        (path,) = links((await browser.get("/calls")).text, "/calls")
        text = copied((await browser.get(path)).text)
    await run_copied(text, shop(), monkeypatch)


async def test_a_replay_that_differs_is_shown_as_two_sides_and_as_a_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = with_another_step_in_a_replay()
    async with server.running():
        with pytest.raises(CallFailed):
            await ScriptedClient(server, {"Go on?": True}).call_tool("change", {})
        await settled(server)
        browser = Browser(site_of(server))
        (path,) = links((await browser.get("/calls")).text, "/calls")
        page = await browser.get(path)
    assert "The replay went another way" in page.words
    assert re.search(r"Before .*first.* Now .*second", page.words)
    text = copied(page.text)
    assert "check_replay" in text
    with pytest.raises(Exception, match=r"second|replay"):
        await run_copied(text, with_another_step_in_a_replay(), monkeypatch)


async def test_a_page_that_is_open_is_told_of_changes_and_of_nothing_else() -> None:
    async with opened() as (server, _):
        feed = Feed(server.stories, None)
        turns = feed.calls()
        await anext(turns)  # At once: something may have changed since the page was made.
        waiting = asyncio.ensure_future(anext(turns))
        done, _ = await asyncio.wait({waiting}, timeout=0.4)
        assert not done
        await ScriptedClient(server, ANSWERS).call_tool("pay", {"amount": 5})
        async with asyncio.timeout(5):
            await waiting
        await turns.aclose()
