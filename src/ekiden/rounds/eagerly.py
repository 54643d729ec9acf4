"""A task that begins at once.

Most legs end without a wait: their effects are answered from the journal. To start a task for them and
come back to it in the next pass of the loop would cost more than the leg itself. From Python 3.12
on asyncio can begin a task at once; before, it is done here by hand, with the same two functions
that asyncio uses.
"""

import asyncio
import sys

from asyncio.tasks import _enter_task, _leave_task  # pyright: ignore[reportPrivateUsage]  # isort: skip
from collections.abc import Coroutine, Generator
from typing import Any

__all__ = ["EagerTask", "Rest"]


class EagerTask:
    """A coroutine in a task of its own, begun already. If `done`, it has ended without a wait."""

    __slots__ = ("_coroutine", "_error", "_value", "_waits_for", "done", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._error: BaseException | None = None
        self._value: Any = None
        self._waits_for: Any = None
        self.done = False
        if sys.version_info >= (3, 12):
            self.task = asyncio.Task(coroutine, loop=loop, eager_start=True)
            self.done = self.task.done()
        else:
            self.task = loop.create_task(self._go_on())
            self._begin(loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        caller = asyncio.current_task(loop)
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, self.task)
        try:
            self._waits_for = self._coroutine.send(None)
        except StopIteration as stop:
            self.done, self._value = True, stop.value
        except BaseException as error:
            self.done, self._error = True, error
        finally:
            _leave_task(loop, self.task)
            if caller is not None:
                _enter_task(loop, caller)

    async def _go_on(self) -> Any:
        return None if self.done else await Rest(self._coroutine, self._waits_for)

    def exception(self) -> BaseException | None:
        """What it raised; a cancellation counts."""
        if sys.version_info < (3, 12) and self.done:
            return self._error
        return asyncio.CancelledError() if self.task.cancelled() else self.task.exception()

    def result(self) -> Any:
        """What it returned."""
        return self._value if sys.version_info < (3, 12) and self.done else self.task.result()


class Rest:
    """What is left of a coroutine after its first wait."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, waits_for = self._coroutine, self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(sent)
        except StopIteration as stop:
            return stop.value
