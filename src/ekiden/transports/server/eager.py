"""Run a coroutine now, up to its first real wait.

Most handlers answer without waiting. For them a watchdog for disconnects, a keep-alive timer or
a body timeout would cost more than the call itself, so those are set up only once the coroutine
has shown that it waits. It stays in the task of its caller throughout, because timeouts and cancel scopes
inside it are bound to that task.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Started"]

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
