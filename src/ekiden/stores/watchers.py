"""In-process subscribers to task changes; each is called in its own event loop."""

import asyncio
from collections.abc import Callable

from ekiden.tasks.store import Signal, Watcher

__all__ = ["Watchers"]


class Watchers:
    """The watchers of one store in this process."""

    def __init__(self) -> None:
        self._watchers: dict[int, tuple[asyncio.AbstractEventLoop, Watcher]] = {}
        self._next = 0

    def add(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` in the running loop for every signal; call what is returned to end that."""
        number = self._next = self._next + 1
        self._watchers[number] = (asyncio.get_running_loop(), watcher)
        return lambda: self._remove(number)

    def _remove(self, number: int) -> None:
        self._watchers.pop(number, None)

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def tell(self, signal: Signal) -> None:
        """Pass a signal on to all watchers. May be called from any thread."""
        for number, (loop, watcher) in tuple(self._watchers.items()):
            if loop.is_closed():
                self._remove(number)
                continue
            try:
                here = asyncio.get_running_loop() is loop
            except RuntimeError:
                here = False
            if here:
                watcher(signal)
            else:
                loop.call_soon_threadsafe(watcher, signal)
