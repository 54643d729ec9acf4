"""Large rows, each read once for all who look at it.

A task may keep a result of tens of megabytes, and any number of requests may look at it. So one large row is
read at a time, who looks while it is read has what comes, and as long as anybody holds a row, it is not read
again unless it has changed.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from ekiden.tasks.record import TaskRecord
from ekiden.tasks.store import Glance

__all__ = ["SMALL", "LargeRows"]

SMALL: Final = 64 * 1024
"""Bytes of a row that is not large: to read and decode it takes a tenth of a millisecond."""

_Key: TypeAlias = tuple[str, Hashable]


class LargeRows:
    """The large rows of one store that somebody looks at."""

    def __init__(self, read: Callable[[str], Awaitable[TaskRecord | None]]) -> None:
        self._read = read
        self._held = WeakValueDictionary[_Key, Glance]()
        self._coming: dict[_Key, asyncio.Task[Glance | None]] = {}
        self._turn = asyncio.Lock()

    async def look(self, task_id: str, version: Hashable) -> Glance | None:
        """The row of a task that has this version now; None if it is gone. It is shared: do not change it."""
        key = task_id, version
        if (held := self._held.get(key)) is not None:
            return held
        if not self._coming:
            self._turn = asyncio.Lock()  # The one before may be of an event loop that is closed.
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.get_running_loop().create_task(self._find(key))
            coming.add_done_callback(functools.partial(self._done, key))
        return await asyncio.shield(coming)

    async def _find(self, key: _Key) -> Glance | None:
        async with self._turn:
            record = await self._read(key[0])
        if record is None:
            return None
        found = self._held[key] = Glance(record)
        return found

    def _done(self, key: _Key, task: "asyncio.Task[Glance | None]") -> None:
        del self._coming[key]
        if not task.cancelled():
            task.exception()  # Whoever looked has it; asyncio would log it if all of them have left.
