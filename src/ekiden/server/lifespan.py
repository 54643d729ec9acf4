"""The lifespan: what a server acquires before its first request and releases after its last.

The author's context manager is entered and left in one task of its own, whichever tasks call `start`
and `stop`, because cancel scopes and task groups in it require that.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

__all__ = ["Lifespan"]


class Lifespan:
    """Starts once, stops once, and can start again."""

    def __init__(self, enter: Callable[[], AbstractAsyncContextManager[object]] | None) -> None:
        self._enter = enter
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[object] | None = None
        self._stop: asyncio.Event | None = None

    async def start(self) -> object:
        """Enter the context manager and return its value. If it fails, every caller gets the error."""
        if self._enter is None:
            return None
        if self._ready is None:
            loop = asyncio.get_running_loop()
            self._ready, self._stop = loop.create_future(), asyncio.Event()
            self._task = loop.create_task(self._hold(self._enter, self._ready, self._stop))
        return await asyncio.shield(self._ready)

    async def _hold(
        self,
        enter: Callable[[], AbstractAsyncContextManager[object]],
        ready: asyncio.Future[object],
        stop: asyncio.Event,
    ) -> None:
        try:
            async with enter() as value:
                ready.set_result(value)
                await stop.wait()
        except BaseException as error:
            if ready.done():
                raise
            self._ready = None
            if isinstance(error, asyncio.CancelledError):  # Who waits for it would seem to be cancelled.
                error = RuntimeError("the lifespan raised CancelledError")
            ready.set_exception(error)

    def forget(self) -> None:
        """Begin anew: the event loop of the context manager is closed, so that it cannot be left any more."""
        self._task = self._ready = self._stop = None

    async def stop(self) -> None:
        """Leave the context manager; an error in it is raised here."""
        task, stop = self._task, self._stop
        self._task = self._ready = self._stop = None
        if task is not None and stop is not None:
            stop.set()
            await task
