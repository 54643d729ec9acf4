"""What a client of 2025 is told of."""

import asyncio
from typing import Any, cast

from ekiden import Server
from ekiden.bus.port import Bus
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


async def test_a_resource_that_changed_before_its_subscription_was_heard_of_is_told_of() -> None:
    """The client subscribed at another process, which told this one a moment later."""
    registry = Server("s")._registry
    registry.hub.connect(cast("Bus", object()), "s")  # There are other processes, which say nothing here.
    watching = Watching(registry)
    registry.resources.declared = True
    told = watching.notifications(has_listened=False)
    listening = asyncio.ensure_future(anext(told))
    await asyncio.sleep(0)
    registry.hub.resource_updated("note://before")
    watching.watch_also("note://before")
    assert await soon(listening) == ("notifications/resources/updated", {"uri": "note://before"})
    watching.watch_also("note://before")  # Once is enough, and so is what did not change.
    watching.watch_also("note://other")
    watching.end()
    assert [change async for change in told] == []
