"""Run a coroutine now, up to its first real wait.

Most handlers answer without waiting. For them a watchdog for disconnects, a keep-alive timer or
a body timeout would cost more than the call itself, so those are set up only once the coroutine
has shown that it waits. With `Started` it stays in the task of its caller throughout, which is what
timeouts and cancel scopes inside it are bound to. With `begin` there is no task at all until it waits.
"""

import asyncio
import types
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, Generic, TypeVar

__all__ = ["Started", "begin", "into_task"]

T = TypeVar("T")


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


class Started(Generic[T]):
    """A coroutine that has run up to its first wait. If `done`, `value` is its result; else await it."""

    __slots__ = ("_coroutine", "_waits_for", "done", "value")

    value: T

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.done = False
        try:
            self._waits_for: Any = coroutine.send(None)
        except StopIteration as stop:
            self.done = True
            self.value = stop.value

    def go_on(self) -> None:
        """Go on with it if what it waits for is there already."""
        awaited: Any = self._waits_for
        if isinstance(awaited, asyncio.Future) and awaited.done():
            try:
                self._waits_for = self._coroutine.send(None)
            except StopIteration as stop:
                self.done = True
                self.value = stop.value

    def __await__(self) -> Generator[Any, Any, T]:
        """Go on with it, as `await coroutine` would have."""
        if self.done:
            return self.value
        value: T = yield from Rest(self._coroutine, self._waits_for).__await__()
        return value


def begin(
    coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, name: str
) -> asyncio.Task[None] | None:
    """Run a coroutine without a task. The task in which it goes on, if it waits; None if it has ended.

    It must not run anybody else's code before it has awaited something: `into_task`, if nothing else.
    """
    context = copy_context()
    try:
        waits_for = context.run(coroutine.send, None)
    except (StopIteration, asyncio.CancelledError):
        return None
    if waits_for is not None:
        coroutine = _go_on(Rest(coroutine, waits_for))
    return asyncio.Task(coroutine, loop=loop, name=name, context=context)


async def _go_on(rest: Rest) -> None:
    await rest


@types.coroutine
def into_task() -> Generator[None, None, None]:
    """Where a coroutine was begun without a task: from here on it is in one."""
    yield
