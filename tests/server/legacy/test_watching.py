"""What a client of 2025 is told of."""

import asyncio
from typing import Any

import pytest

from ekiden import Server
from ekiden.server.legacy.watching import Watching
from tests.serving import soon


async def test_a_task_that_changed_before_there_was_a_stream_is_told_of() -> None:
    watching = Watching(Server("s")._registry)

    async def news() -> dict[str, Any]:
        return {"status": "input_required"}

    watching.follow("a task", news, lambda: None)
    told = watching.notifications(has_listened=False)
    assert await soon(anext(told)) == ("notifications/tasks/status", {"status": "input_required"})
    watching.end()


def watching_one(*uris: str) -> Watching:
    """Of a server with resources, with some subscriptions."""
    registry = Server("s")._registry
    registry.resources.declared = True
    registry.hub.reopen()
    watching = Watching(registry)
    for uri in uris:
        watching.watch(uri, None)
    return watching


def updated(uri: str) -> tuple[str, dict[str, Any]]:
    return ("notifications/resources/updated", {"uri": uri})


async def all_told(watching: Watching, *, has_listened: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """What waits to be told."""
    told = watching.notifications(has_listened=has_listened)
    first = asyncio.ensure_future(anext(told, None))
    await asyncio.sleep(0)
    watching.end()
    return [said for said in [await soon(first), *[said async for said in told]] if said is not None]


@pytest.mark.parametrize("heard", ["one by one", "all at once"])
async def test_a_resource_is_told_of_when_this_process_hears_of_its_subscription(heard: str) -> None:
    """However long ago another process has accepted it, and however much changed meanwhile."""
    watching = watching_one("note://old")
    watching._registry.hub.resource_updated("note://old")
    told = watching.notifications(has_listened=False)
    assert await soon(anext(told)) == updated("note://old")
    listening = asyncio.ensure_future(anext(told))
    await asyncio.sleep(0)
    if heard == "one by one":
        watching.watch_also("note://new")
    else:
        watching.watch_only(["note://old", "note://new"])
    assert await soon(listening) == updated("note://new")
    watching.watch_also("note://new")  # Once is enough.
    watching.end()
    assert [said async for said in told] == []


async def test_what_changed_between_a_subscription_and_the_first_stream_is_told_of() -> None:
    watching = watching_one("note://1", "note://2")
    watching._registry.hub.resource_updated("note://2")
    assert await all_told(watching) == [updated("note://1"), updated("note://2")]
    assert await all_told(watching_one("note://1")) == []


async def test_a_list_that_changed_before_the_first_stream_is_told_of_and_no_other() -> None:
    watching = watching_one()
    watching._registry.tools.declared = True
    watching._registry.hub.list_publisher("toolsListChanged")()
    assert await all_told(watching) == [("notifications/tools/list_changed", {})]
    assert await all_told(watching_one()) == []


async def test_a_change_that_was_not_sent_because_its_client_left_is_told_to_the_next_stream() -> None:
    watching = watching_one("note://1")
    watching._registry.hub.resource_updated("note://1")
    leaving = watching.notifications(has_listened=False)
    assert await soon(anext(leaving)) == updated("note://1")
    await leaving.aclose()
    staying = watching.notifications(has_listened=False)
    assert await soon(anext(staying)) == updated("note://1")
    watching.end()
