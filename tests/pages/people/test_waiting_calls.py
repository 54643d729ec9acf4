"""Calls that wait for people: in words, by URL mode, for clients of both eras, and for somebody else."""

import asyncio
from typing import Any

import pytest

from ekiden import Server, UsageError
from ekiden.stores.memory import MemoryStore
from tests.pages.people.calling import Caller, text
from tests.pages.people.shop import ORIGIN, Post, fill, link_in, pages_of, shop


@pytest.fixture
def ran() -> list[str]:
    return []


async def test_a_client_with_nothing_is_told_the_link_and_goes_on_with_the_same_call(
    store: Any, ran: list[str]
) -> None:
    server = shop(store, ran)
    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        told = await caller.call("refund", order=7)
        assert "isError" not in told
        assert 'Refund order 7?"' in text(told)
        assert "call the tool 'refund' again with exactly the same arguments" in text(told)
        done = await fill(browser, link_in(text(told)), approve="true", reason="broken")
        assert done.status == 303
        assert text(await caller.call("refund", order=7)) == "paid 7, broken"
        assert ran == ["look 7", "pay 7"]
        again = await caller.call("refund", order=7)
        assert link_in(text(again)) != link_in(text(told))


async def test_until_there_is_an_answer_the_same_link_is_told_and_nothing_runs(
    store: Any, ran: list[str]
) -> None:
    server = shop(store, ran)
    async with server.running():
        caller = Caller(server)
        links = {link_in(text(await caller.call("refund", order=7))) for _ in range(3)}
        assert len(links) == 1
        assert ran == ["look 7"]
        assert link_in(text(await caller.call("refund", order=8))) not in links


async def test_of_two_same_calls_at_once_one_waits_and_nobody_is_asked_twice(
    store: Any, ran: list[str]
) -> None:
    post = Post()
    server = shop(store, ran, post=post)
    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        told = await asyncio.gather(*(caller.call("refund", order=7) for _ in range(5)))
        links = {link_in(text(each)) for each in told if "ask/" in text(each)}
        assert len(links) == 1
        await fill(browser, links.pop(), approve="true")
        assert text(await caller.call("refund", order=7)) == "paid 7, "
        await asyncio.gather(*(caller.call("buy") for _ in range(5)))
        assert len(post.notices) == 1


async def test_a_client_with_url_mode_is_sent_to_the_page_and_the_call_goes_on(
    store: Any, ran: list[str]
) -> None:
    server = shop(store, ran, wait=5.0)
    async with server.running():
        caller, browser = Caller(server, elicitation={"url": {}}), pages_of(server)
        asked = await caller.call("refund", order=7)
        [(key, question)] = asked["inputRequests"].items()
        assert question["params"]["mode"] == "url"
        assert question["params"]["message"] == "Refund order 7?"
        await fill(browser, question["params"]["url"].removeprefix(ORIGIN), approve="true")
        answered = {key: {"action": "accept"}}
        done = await caller.call("refund", asked["requestState"], answered, order=7)
        assert text(done) == "paid 7, "
        assert ran == ["look 7", "pay 7"]


async def test_a_client_with_url_mode_that_comes_too_early_is_told_in_words_and_can_call_again(
    store: Any, ran: list[str]
) -> None:
    server = shop(store, ran)
    async with server.running():
        caller, browser = Caller(server, elicitation={"url": {}}), pages_of(server)
        asked = await caller.call("refund", order=7)
        [(key, question)] = asked["inputRequests"].items()
        early = await caller.call("refund", asked["requestState"], {key: {"action": "accept"}}, order=7)
        assert link_in(text(early)) == question["params"]["url"].removeprefix(ORIGIN)
        await fill(browser, link_in(text(early)), approve="true")
        assert text(await caller.call("refund", order=7)) == "paid 7, "
        # The client that has kept its token gets the same, and nothing runs again.
        late = await caller.call("refund", asked["requestState"], {key: {"action": "accept"}}, order=7)
        assert text(late) == "paid 7, "
        assert ran == ["look 7", "pay 7"]


async def test_a_client_cannot_answer_for_the_page(store: Any, ran: list[str]) -> None:
    server = shop(store, ran)
    async with server.running():
        caller = Caller(server, elicitation={"url": {}})
        asked = await caller.call("refund", order=7)
        forged = {key: {"action": "accept", "content": {"approve": True}} for key in asked["inputRequests"]}
        told = await caller.call("refund", asked["requestState"], forged, order=7)
        assert "has to answer" in text(told)
        assert ran == ["look 7"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_does_not_want_to_open_the_page_has_answered(
    store: Any, ran: list[str], action: str
) -> None:
    server = shop(store, ran)
    async with server.running():
        caller, browser = Caller(server, elicitation={"url": {}}), pages_of(server)
        asked = await caller.call("refund", order=7)
        [(key, question)] = asked["inputRequests"].items()
        done = await caller.call("refund", asked["requestState"], {key: {"action": action}}, order=7)
        assert text(done) == f"refund: {action}"
        page = await browser.get(question["params"]["url"].removeprefix(ORIGIN))
        assert "<form" not in page.text


async def test_a_client_that_can_show_a_form_is_asked_itself(store: Any, ran: list[str]) -> None:
    server = shop(store, ran)
    async with server.running():
        asked = await Caller(server, elicitation={}).call("refund", order=7)
        [question] = asked["inputRequests"].values()
        assert question["params"]["mode"] == "form"


async def test_a_page_can_be_declined(store: Any, ran: list[str]) -> None:
    server = shop(store, ran)
    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        path = link_in(text(await caller.call("refund", order=7)))
        await fill(browser, path, "decline")
        assert "declined" in (await browser.get(path)).words
        assert text(await caller.call("refund", order=7)) == "refund: decline"


async def test_somebody_else_answers_and_the_caller_sees_no_link(store: Any, ran: list[str]) -> None:
    post = Post()
    server = shop(store, ran, post=post)
    async with server.running():
        caller, browser = Caller(server, elicitation={}), pages_of(server)
        told = await caller.call("buy")
        assert "finance@example.com was asked" in text(told)
        assert ORIGIN not in text(told)
        assert [(n.kind, n.person, n.message) for n in post.notices] == [
            ("asked", "finance@example.com", "Buy it?")
        ]
        await caller.call("buy")
        assert len(post.notices) == 1
        await fill(browser, post.path(), approve="true", reason="needed")
        # The next question is for the client itself, which can show a form.
        asked = await caller.call("buy")
        answers = {key: {"action": "accept", "content": {"size": "large"}} for key in asked["inputRequests"]}
        done = await caller.call("buy", asked["requestState"], answers)
        assert text(done) == "True needed large"
        assert ran == ["bought"]


async def test_a_tool_with_an_output_schema_says_it_in_an_error_that_breaks_no_schema(
    store: Any, ran: list[str]
) -> None:
    server = shop(store, ran)
    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        told = await caller.call("count")
        assert told["isError"] is True
        wrong = await fill(browser, link_in(text(told)), value="many")
        assert wrong.status == 422
        await fill(browser, link_in(text(told)), value="3")
        assert (await caller.call("count"))["structuredContent"] == {"pieces": 3}


async def test_a_prompt_waits_with_an_error_that_says_what_to_do(store: Any, ran: list[str]) -> None:
    server = shop(store, ran)
    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        error = await caller.fails("prompts/get", name="letter")
        await fill(browser, link_in(error.message), value="Aiko")
        got = await caller.send("prompts/get", name="letter")
        assert got["messages"][0]["content"]["text"] == "Dear Aiko"


async def test_what_can_be_asked_counts_the_pages_in(ran: list[str]) -> None:
    from ekiden import Context

    server = shop(MemoryStore(), ran)

    @server.tool
    async def look(ctx: Context) -> str:
        return f"{ctx.can_ask('elicitation')} {ctx.can_ask('sampling')}"

    async with server.running():
        assert text(await Caller(server).call("look")) == "True False"


async def test_pages_need_a_store_and_who_needs_pages() -> None:
    from ekiden import Context, Pages

    with pytest.raises(UsageError, match="needs a store"):
        Server("s", pages=Pages(ORIGIN))
    for origin in ("mcp.example", "http://mcp.example", "https://mcp.example/?a=b"):
        with pytest.raises(UsageError, match=r"Pages\(\) needs"):
            Pages(origin)
    server = Server("s", keys=[b"k" * 32])

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.elicit("?", bool, who="a@example.com")
        return "never"

    async with server.running():
        # A client cannot pretend that there are pages.
        told = await Caller(server, elicitation={}, **{"ekiden/pages": {}}).call("ask")
        assert told["isError"] is True
