"""The task that a handler runs in, and what it starts before its first wait.

Most legs end without a wait: their effects are answered from the journal, or the first thing that they
wait for is an answer, which ends the round. So the task begins at once where asyncio can do that (Python
3.12 and later); before, in the next pass of the loop.

In its first stretch, up to its first wait, nobody else runs. If the handler has started no other task
there, it is alone: an effect cannot come in anybody's way, and a question has no siblings to wait for.
The loop's task factory tells; it is ours for the length of that stretch only.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ekiden.opaque import Opaque

__all__ = ["BEGINS_AT_ONCE", "FirstStretch"]

BEGINS_AT_ONCE: Final = sys.version_info >= (3, 12)
"""Whether a handler's first stretch is over when its task has been made."""


class FirstStretch(Opaque):
    """A handler's task up to its first wait."""

    _loop: asyncio.AbstractEventLoop
    alone: bool = False
    """Whether the handler is in its first stretch and has started no other task."""
    _factory: Callable[..., Any] | None = None
    """The loop's own task factory, meanwhile."""

    def run(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start the handler, which calls `begin` first thing. Where it begins at once, it may be done by now.

        Where it does not, whoever calls this has `end` called in the next pass, right after the handler.
        """
        if sys.version_info >= (3, 12):
            try:
                return asyncio.Task(coroutine, loop=self._loop, name=name, eager_start=True)
            finally:
                self.end()
        return asyncio.Task(coroutine, loop=self._loop, name=name)

    def begin(self) -> None:
        """The handler begins."""
        self.alone = True
        self._factory = self._loop.get_task_factory()
        self._loop.set_task_factory(self)

    def end(self) -> None:
        """The handler waits for the first time, or has ended."""
        self.alone = False
        if self._loop.get_task_factory() is self:  # Else the handler has set one of its own.
            self._loop.set_task_factory(self._factory)

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        """Make a task, in place of the loop's own factory."""
        self.alone = False
        if self._factory is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return self._factory(loop, coroutine, **options)
