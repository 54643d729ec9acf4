"""A server that asks people and records its calls: what is recorded lets nobody answer."""

import logging
from typing import Any

import pytest

from ekiden.pages.people.notifiers import to_log
from ekiden.stories.store import CallQuery
from tests.pages.people.calling import Caller, text
from tests.pages.people.shop import LINK, link_in, shop
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
