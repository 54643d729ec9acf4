"""What the listeners of a task are told: looked up and spelled once for all who ask at the same time."""

import asyncio
from collections.abc import Awaitable, Callable

from ekiden.rounds.journal import fingerprint
from ekiden.wire.json import JsonObject, encode

__all__ = ["NewsDesk", "TaskNews"]


class TaskNews:
    """The state of a task, as a notification has it. It is shared: nobody may change it.

    Large parts of it may be `Raw`, so that they are copied to the wire as they are.
    """

    def __init__(self, params: JsonObject) -> None:
        self.params = params
        self._mark = ""

    @property
    def mark(self) -> str:
        """A fingerprint: equal for equal states."""
        if not self._mark:
            self._mark = fingerprint(encode(self.params))
        return self._mark


class NewsDesk:
    """Looks a task up for all who ask before the looking begins. Who asks later may know more."""

    def __init__(self, look: Callable[[str], Awaitable[TaskNews | None]]) -> None:
        self._look = look
        self._coming: dict[str, asyncio.Task[TaskNews | None]] = {}

    async def of(self, task_id: str) -> TaskNews | None:
        """The current state of a task; None if it is gone."""
        coming = self._coming.get(task_id)
        if coming is None:
            coming = self._coming[task_id] = asyncio.get_running_loop().create_task(self._find(task_id))
            coming.add_done_callback(_seen)
        return await asyncio.shield(coming)

    async def _find(self, task_id: str) -> TaskNews | None:
        del self._coming[task_id]
        return await self._look(task_id)


def _seen(task: "asyncio.Task[TaskNews | None]") -> None:
    if not task.cancelled():
        task.exception()  # Whoever asked has it; asyncio would log it if all of them have left.
