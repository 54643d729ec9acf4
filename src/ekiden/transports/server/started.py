"""A coroutine that was begun at once, and has come to its first real wait.

Most handlers answer without waiting. For them a watchdog for disconnects, a keep-alive timer or
a body timeout would cost more than the call itself, so those are set up only once the coroutine
has shown that it waits. It stays in the task of its caller throughout, because timeouts and cancel scopes
inside it are bound to that task.
"""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeAlias, TypeVar

__all__ = ["Started"]

T = TypeVar("T")

Running: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, Any, T]


class Started(Generic[T]):
    """A coroutine that has run up to its first wait: go on with it by `await`."""

    __slots__ = ("_running", "_waits_for")

    def __init__(self, running: Running[T], waits_for: Any) -> None:
        self._running = running
        self._waits_for = waits_for

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
