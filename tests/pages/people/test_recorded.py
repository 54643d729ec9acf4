"""A server that asks people and records its calls: what is recorded lets nobody answer."""

import logging
from typing import Any

import pytest

from ekiden.pages.desk.story import assembled
from ekiden.pages.people.notifiers import to_log
from ekiden.stories.store import CallQuery
from tests.pages.people.calling import Caller, text
from tests.pages.people.shop import LINK, fill, link_in, pages_of, shop
from tests.stories.telling import events_of, stories_of


async def test_what_is_recorded_has_no_link_that_opens(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = shop(store, [], record=True, post=to_log)
    async with server.running():
        with caplog.at_level(logging.WARNING):
            link_in(text(await Caller(server).call("refund", order=1)))
            link_in(str(await Caller(server, elicitation={"url": {}}).call("refund", order=2)))
            await Caller(server).call("buy")
            await Caller(server).fails("prompts/get", name="letter")
        assert LINK.search(caplog.text), "the notifier has told of a link"
        stories = await stories_of(server)
        rows = await stories.listing(CallQuery())
        told = [repr(event) for row in rows for event in await events_of(stories, row.id)]
        assert [event for event in told if LINK.search(event)] == []
        assert sum("(hidden)" in event for event in told) == 4


async def test_a_call_that_waits_for_people_is_one_story(store: Any) -> None:
    server = shop(store, [], record=True)
    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        await fill(browser, link_in(text(await caller.call("refund", order=1))), approve="true")
        assert text(await caller.call("refund", order=1)).startswith("paid 1")
        (row,) = await (await stories_of(server)).listing(CallQuery())
    assert row.state == "completed"


async def test_a_call_that_waits_for_a_person_says_so_and_for_whom(store: Any) -> None:
    server = shop(store, [], record=True)
    async with server.running():
        caller = Caller(server)
        await caller.call("buy")
        await caller.call("buy")
        stories = await stories_of(server)
        (row,) = await stories.listing(CallQuery())
        view = assembled(row, await events_of(stories, row.id))
    assert row.state == "waiting"
    assert [leg.how for leg in view.legs] == ["asked", "no answer yet"]
    assert [(question.who, question.answered) for question in view.questions] == [
        ("finance@example.com", None)
    ]
