"""Requests that wait for a task: however many they are, it is looked at once for all of them.

A client may wait for one task with a thousand requests, and its task may have arguments of some megabytes. So
they share one record, without the arguments.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from ekiden.errors import InvalidParams, StoreUnavailable
from ekiden.server.tasks.final import FinalResult
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.store import Signal, TaskStore

__all__ = ["Awaited", "Waiting"]

_LOOK_SECONDS: Final = 1.0
"""How often a task that is waited for is loaded, in case a signal was lost."""
_NOTHING: Final[Mapping[str, Any]] = {}


class Awaited:
    """One task that requests of this process wait for."""

    def __init__(self, store: TaskStore, task_id: str) -> None:
        self.users = 0
        self._store = store
        self._id = task_id
        self._record: TaskRecord | None = None
        self._final: FinalResult | None = None
        self._problem: InvalidParams | StoreUnavailable | None = None
        self._changed = asyncio.Event()
        """Set when there is something new, and then replaced by another."""
        self._wake = asyncio.Event()
        self._unwatch = store.watch(self._on_signal)
        self._looking = asyncio.get_running_loop().create_task(self._look_again())

    def _on_signal(self, signal: Signal) -> None:
        if signal.task_id == self._id:
            self._wake.set()

    async def after(self, seen: TaskRecord | None) -> TaskRecord:
        """The task as it is now, or as soon as it is another than `seen`."""
        while self._problem is None and (self._record is None or self._record is seen):
            await self._changed.wait()
        if self._problem is not None:
            raise type(self._problem)(str(self._problem))
        assert self._record is not None
        return self._record

    def final(self, record: TaskRecord) -> FinalResult:
        """How it has ended: the same for all who wait for it."""
        if self._final is None or self._final.record is not record:
            self._final = FinalResult(record)
        return self._final

    def look(self) -> None:
        """Load it now: somebody has come who may know more."""
        self._wake.set()

    async def _look_again(self) -> None:
        while self._problem is None:
            self._wake.clear()
            try:
                seen = await self._store.glance(self._id)
                self._take(None if seen is None else seen.record)
            except StoreUnavailable as error:
                self._problem = error
            if self._problem is not None:
                self._tell()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._wake.wait()

    def _take(self, found: TaskRecord | None) -> None:
        if found is None:
            self._problem = InvalidParams("Unknown task")
            return
        light = msgspec.structs.replace(found, arguments={**_NOTHING}, meta={**_NOTHING})
        if light != self._record:
            self._record = light
            self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def has_failed(self) -> bool:
        """Whether it is not looked at any more."""
        return self._problem is not None

    def stop(self) -> None:
        """Nobody waits for it any more."""
        self._unwatch()
        self._looking.cancel()


class Waiting:
    """The tasks that requests of this process wait for."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._awaited: dict[str, Awaited] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    @asynccontextmanager
    async def for_task(self, task_id: str) -> AsyncGenerator[Awaited, None]:
        """Wait for a task in this block."""
        awaited = self._awaited.get(task_id)
        if awaited is None or awaited.has_failed:
            awaited = self._awaited[task_id] = Awaited(self._store, task_id)
        awaited.users += 1
        awaited.look()
        try:
            yield awaited
        finally:
            awaited.users -= 1
            if not awaited.users:
                awaited.stop()
                if self._awaited.get(task_id) is awaited:
                    del self._awaited[task_id]
