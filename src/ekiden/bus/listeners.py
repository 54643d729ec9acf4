"""Who listens in this process; each listener is called in its own event loop."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Listeners"]

T = TypeVar("T")


class Listeners(Generic[T]):
    """The listeners of one store or bus in this process."""

    def __init__(self) -> None:
        self._listeners: dict[int, tuple[asyncio.AbstractEventLoop, Callable[[T], None]]] = {}
        self._next = 0

    def add(self, listener: Callable[[T], None]) -> Callable[[], None]:
        """Call `listener` in the running loop for every message; call what is returned to end that."""
        number = self._next = self._next + 1
        self._listeners[number] = (asyncio.get_running_loop(), listener)
        return lambda: self._remove(number)

    def _remove(self, number: int) -> None:
        self._listeners.pop(number, None)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def tell(self, message: T) -> None:
        """Pass a message on to all listeners. May be called from any thread."""
        for number, (loop, listener) in tuple(self._listeners.items()):
            if loop.is_closed():
                self._remove(number)
                continue
            try:
                here = asyncio.get_running_loop() is loop
            except RuntimeError:
                here = False
            if here:
                listener(message)
                continue
            try:
                loop.call_soon_threadsafe(listener, message)
            except RuntimeError:  # It was closed meanwhile.
                self._remove(number)
