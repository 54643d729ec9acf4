"""Run a coroutine now, up to its first real wait.

Most handlers answer without waiting. For them a watchdog for disconnects, a keep-alive timer or
a body timeout would cost more than the call itself, so those are set up only once the coroutine
has shown that it waits. It stays in the task of its caller throughout, because timeouts and cancel scopes
inside it are bound to that task.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeAlias, TypeVar

__all__ = ["Started", "start"]

T = TypeVar("T")

Running: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, Any, T]


class Started(Generic[T]):
    """A coroutine that has run up to its first wait: go on with it by `await`."""

    __slots__ = ("_running", "_waits_for")

    def __init__(self, running: Running[T], waits_for: Any) -> None:
        self._running = running
        self._waits_for = waits_for

    def go_on(self) -> "T | Started[T]":
        """Go on with it if what it waits for is there already: one pass of the loop may be all."""
        awaited = self._waits_for
        if awaited is None or (isinstance(awaited, asyncio.Future) and awaited.done()):
            return start(self._running)
        return self

    def __await__(self) -> Generator[Any, Any, T]:
        """Go on with it, as `await coroutine` would have."""
        running, waits_for = self._running, self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except GeneratorExit:
                    running.close()
                    raise
                except BaseException as error:
                    waits_for = running.throw(error)
                else:
                    waits_for = running.send(sent)
        except StopIteration as stop:
            value: T = stop.value
            return value


def start(running: Running[T]) -> T | Started[T]:
    """Run a coroutine up to its first wait: its value if it has none, else what is left to be awaited."""
    try:
        return Started(running, running.send(None))
    except StopIteration as stop:
        value: T = stop.value
        return value
