"""Run a coroutine now, up to its first real wait.

Most handlers answer without waiting. For them a watchdog for disconnects, a keep-alive timer or
a body timeout would cost more than the call itself, so those are set up only once the coroutine
has shown that it waits. It stays in the task of its caller throughout, which is what timeouts
and cancel scopes inside it are bound to.
"""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

from ekiden.rounds.eagerly import Rest

__all__ = ["Started"]

T = TypeVar("T")


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

    def __await__(self) -> Generator[Any, Any, T]:
        """Go on with it, as `await coroutine` would have."""
        if self.done:
            return self.value
        value: T = yield from Rest(self._coroutine, self._waits_for).__await__()
        return value
