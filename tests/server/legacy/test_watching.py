"""What a client of 2025 is told of."""

from typing import Any

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
