"""What has changed while a page is open: told by the store, gathered for a moment, and looked at then."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack
from typing import Final

from ekiden.stories.store import StoryStore
from ekiden.tasks.store import Signal, TaskStore

__all__ = ["Feed"]

_GATHER_SECONDS: Final = 0.25
"""What changes within this time is shown together: a page need not be drawn more often."""


class Feed:
    """Changes of calls and tasks. Nothing is asked of the store while nothing changes."""

    def __init__(self, stories: StoryStore | None, tasks: TaskStore | None) -> None:
        self._stories = stories
        self._tasks = tasks

    async def calls(self, call_id: str | None = None) -> AsyncGenerator[None, None]:
        """A turn at once, and one for each time that calls, or this one, have changed."""
        changed = asyncio.Event()

        def hear(ids: Sequence[str]) -> None:
            if call_id is None or not ids or call_id in ids:
                changed.set()

        with ExitStack() as stack:
            if self._stories is not None:
                stack.callback(await self._stories.watch(hear))
            async for _ in _turns(changed):
                yield

    async def tasks(
        self, task_id: str | None = None, call_id: str | None = None
    ) -> AsyncGenerator[None, None]:
        """The same for tasks; `call_id` is the call that became this task."""
        changed = asyncio.Event()

        def hear(signal: Signal) -> None:
            if task_id is None or signal.task_id == task_id:
                changed.set()

        def hear_of_calls(ids: Sequence[str]) -> None:
            if call_id is not None and (not ids or call_id in ids):
                changed.set()

        with ExitStack() as stack:
            if self._tasks is not None:
                stack.callback(self._tasks.watch(hear))
            if self._stories is not None and call_id is not None:
                stack.callback(await self._stories.watch(hear_of_calls))
            async for _ in _turns(changed):
                yield


async def _turns(changed: asyncio.Event) -> AsyncGenerator[None, None]:
    """The first turn is at once: something may have changed between the page and its feed."""
    yield
    while True:
        await changed.wait()
        await asyncio.sleep(_GATHER_SECONDS)
        changed.clear()
        yield
