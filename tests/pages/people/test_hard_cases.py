"""Calls that wait for people in unusual ways: several at once, answers of no use, parked handlers."""

import asyncio
from typing import Any

from pydantic import BaseModel, field_validator

from ekiden import Context, Person, Principal
from ekiden.stores.memory import MemoryStore
from tests.pages.people.calling import Caller, text
from tests.pages.people.shop import LINK, ORIGIN, Post, fill, link_in, pages_of, shop


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("it must be even")
        return value


async def test_an_answer_that_the_handler_cannot_use_is_asked_for_again_with_a_new_link(store: Any) -> None:
    server = shop(store, [])

    @server.tool
    async def pick(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", Even)).data)

    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        first = link_in(text(await caller.call("pick")))
        await fill(browser, first, number="3")
        second = link_in(text(await caller.call("pick")))
        assert second != first
        assert "An earlier answer could not be used" in (await browser.get(second)).words
        assert link_in(text(await caller.call("pick"))) == second
        await fill(browser, second, number="4")
        assert text(await caller.call("pick")) == "number=4"


async def test_several_people_are_asked_at_once_and_answer_in_any_order(store: Any) -> None:
    post, ran = Post(), list[str]()
    server = shop(store, ran, post=post)

    def note(what: str) -> None:
        ran.append(what)

    @server.tool(once=True)
    async def vote(ctx: Context) -> str:
        async def ask(name: str) -> str:
            answer = await ctx.elicit(f"{name}?", bool, who=f"{name}@example.com")
            await ctx.step(note, f"{name} said", key=name)
            return f"{name} {answer.data}"

        mine = ctx.elicit("And you?", bool)
        *others, own = await asyncio.gather(ask("ann"), ask("ben"), mine)
        return f"{', '.join(others)}, own {own.data}"

    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        told = text(await caller.call("vote"))
        assert [len(LINK.findall(told)), told.count("was asked")] == [1, 2]
        paths = {notice.person: notice.link.removeprefix(ORIGIN) for notice in post.notices}
        await fill(browser, paths["ben@example.com"], value="true")
        again = text(await caller.call("vote"))
        assert link_in(again) == link_in(told)
        assert again.count("was asked") == 1
        await fill(browser, link_in(told), value="false")
        await caller.call("vote")
        await fill(browser, paths["ann@example.com"], value="false")
        assert text(await caller.call("vote")) == "ann False, ben True, own False"
        assert sorted(ran) == ["ann said", "ben said"]
        assert len(post.notices) == 2


async def test_a_parked_handler_waits_in_its_process_and_goes_on() -> None:
    server = shop(MemoryStore(), [])
    began: list[str] = []

    @server.tool(resume="parked")
    async def hold(ctx: Context) -> str:
        began.append("once")
        return str((await ctx.elicit("Well?", bool)).data)

    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        path = link_in(text(await caller.call("hold")))
        await fill(browser, path, value="true")
        assert text(await caller.call("hold")) == "True"
        assert began == ["once"]


async def test_a_question_that_nobody_waits_for_any_more_is_closed(store: Any) -> None:
    server = shop(store, [])

    @server.tool
    async def either(ctx: Context) -> str:
        asked = [asyncio.ensure_future(ctx.elicit(f"{name}?", bool)) for name in ("left", "right")]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        return "one of them"

    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        left, right = LINK.findall(text(await caller.call("either")))
        await fill(browser, right, value="true")
        assert text(await caller.call("either")) == "one of them"
        assert "nothing to answer any more" in (await browser.get(left)).words


async def test_a_call_that_fails_does_not_wait_for_ever(store: Any) -> None:
    server = shop(store, [])

    @server.tool
    async def fragile(ctx: Context) -> str:
        await ctx.elicit("Well?", bool)
        raise RuntimeError("broken")

    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        path = link_in(text(await caller.call("fragile")))
        await fill(browser, path, value="true")
        assert (await caller.call("fragile"))["isError"] is True
        assert link_in(text(await caller.call("fragile"))) != path


async def test_answers_that_are_no_object_are_refused_and_the_call_waits_on(store: Any) -> None:
    ran: list[str] = []
    server = shop(store, ran, wait=5.0)
    async with server.running():
        caller, browser = Caller(server, elicitation={"url": {}}), pages_of(server)
        asked = await caller.call("refund", order=7)
        params = {"name": "refund", "arguments": {"order": 7}, "requestState": asked["requestState"]}
        for wrong in ([], "yes", 1):
            error = await caller.fails("tools/call", **params, inputResponses=wrong)
            assert (error.code, "must be an object" in error.message) == (-32602, True)
        [(key, question)] = asked["inputRequests"].items()
        await fill(browser, question["params"]["url"].removeprefix(ORIGIN), approve="true")
        done = await caller.call("refund", asked["requestState"], {key: {"action": "accept"}}, order=7)
        assert text(done) == "paid 7, "
        assert ran == ["look 7", "pay 7"]


async def test_a_call_with_a_long_history_waits_for_people_and_goes_on(store: Any) -> None:
    """What no token could carry lies in the store."""
    server = shop(store, [], wait=5.0)

    @server.tool
    async def long(ctx: Context) -> str:
        read = await ctx.step(lambda: "x" * 300_000, key="read")
        return f"{len(read)} {(await ctx.elicit('Well?', bool)).data}"

    async with server.running():
        caller, browser = Caller(server, elicitation={"url": {}}), pages_of(server)
        asked = await caller.call("long")
        assert len(asked["requestState"]) < 10_000
        [(key, question)] = asked["inputRequests"].items()
        await fill(browser, question["params"]["url"].removeprefix(ORIGIN), value="true")
        done = await caller.call("long", asked["requestState"], {key: {"action": "accept"}})
        assert text(done) == "300000 True"


async def test_who_needs_a_better_token_after_the_page_does_not_ask_anybody_again(store: Any) -> None:
    post = Post()
    server = shop(store, [], post=post)

    @server.tool
    async def pay(ctx: Context) -> str:
        said = await ctx.elicit("Well?", bool, who=Person("finance@example.com"))
        await ctx.require_scope("pay")
        return f"paid, {said.data}"

    def caller(*scopes: str) -> Caller:
        return Caller(server, who=Principal("ann", scopes=frozenset(scopes)))

    async with server.running():
        await caller().call("pay")
        await fill(pages_of(server), post.path(), value="true")
        for _ in range(2):
            refused = await caller("look").fails("tools/call", name="pay", arguments={})
            assert "this needs pay" in refused.message
        assert text(await caller("look", "pay").call("pay")) == "paid, True"
        assert len(post.notices) == 1
