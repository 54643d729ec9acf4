"""Many callers, one statement: requests that come while a statement runs share the next one.

So many requests share a commit, and a single request is never delayed to wait for others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from ekiden.errors import StoreRefused

__all__ = ["Together"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST: Final = 100
"""Items in one statement at most."""
_MOST_BYTES: Final = 4 * 2**20
"""Bytes in one statement at most; a larger item has a statement of its own."""


class _Wanted(Generic[Item, Result]):
    __slots__ = ("future", "item", "key", "size")

    def __init__(self, item: Item, key: str | None, size: int) -> None:
        self.item = item
        self.key = key
        self.size = size
        self.future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def settle(self, result: Result) -> None:
        if not self.future.done():  # Else the caller was cancelled; the statement ran all the same.
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Together(Generic[Item, Result]):
    """One kind of statement. `run` does it for several items, and gives a result for each."""

    def __init__(self, run: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]], *, lanes: int) -> None:
        self._run = run
        self._lanes = lanes
        self._queue: list[_Wanted[Item, Result]] = []
        self._running: set[asyncio.Task[None] | None] = set()
        """The lanes that will look into the queue again."""

    async def do(self, item: Item, key: str | None = None, size: int = 0) -> Result:
        """Do an item, also if the caller is cancelled. Two items with one key never share a statement."""
        wanted: _Wanted[Item, Result] = _Wanted(item, key, size)
        self._queue.append(wanted)
        if len(self._running) < self._lanes:
            task = asyncio.create_task(self._drain())
            self._running.add(task)
            task.add_done_callback(self._ended)
        return await wanted.future

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():  # The loop ends.
            for wanted in self._queue:
                wanted.future.cancel()
            self._queue.clear()

    async def _drain(self) -> None:
        try:
            while self._queue:
                await self._attempt(self._next())
        finally:
            self._running.discard(asyncio.current_task())  # At once: the next request needs a new lane.

    def _next(self) -> list[_Wanted[Item, Result]]:
        """Take the next batch from the queue, in order. Requests of cancelled callers are done too."""
        keys: set[str | None] = set()
        batch: list[_Wanted[Item, Result]] = []
        rest: list[_Wanted[Item, Result]] = []
        size = 0
        for wanted in self._queue:
            fits = not batch or (len(batch) < _MOST and size + wanted.size <= _MOST_BYTES)
            if fits and (wanted.key is None or wanted.key not in keys):
                batch.append(wanted)
                size += wanted.size
            else:
                rest.append(wanted)
            keys.add(wanted.key)
        self._queue = rest
        return batch

    async def _attempt(self, batch: list[_Wanted[Item, Result]]) -> None:
        try:
            results = await self._run([wanted.item for wanted in batch])
        except asyncio.CancelledError:  # The loop ends.
            for wanted in batch:
                wanted.future.cancel()
            raise
        except StoreRefused as error:
            if len(batch) == 1:
                batch[0].fail(error)
                return
            for wanted in batch:  # One item is refused: find it, so that the others do not fail with it.
                await self._attempt([wanted])
        except Exception as error:
            for wanted in batch:
                wanted.fail(error)
        else:
            for wanted, result in zip(batch, results, strict=True):
                wanted.settle(result)

    async def settle(self) -> None:
        """Wait until nothing runs any more."""
        while running := [task for task in self._running if task is not None]:
            await asyncio.wait(running)
