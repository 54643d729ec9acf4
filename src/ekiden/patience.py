"""Patience with a handler: a timer that counts only time in which the event loop ran.

While another call blocks the event loop, or the process stands still, no handler can come to anything. It is
not late by that.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

__all__ = ["Patience"]

_STOOD_STILL: Final = 0.2
"""Seconds by which a timer is late if the event loop stood still. Then it is set once more."""


class Patience:
    """Calls a function after so many seconds, unless it is cancelled before."""

    __slots__ = ("_loop", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, act: Callable[..., None], *arguments: Any
    ) -> None:
        self._loop = loop
        # The timer holds all that leads back here, and lets go of it: nothing is left to the collector.
        self._timer = loop.call_later(seconds, self._over, seconds, act, arguments)

    def _over(self, seconds: float, act: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        late = self._loop.time() - self._timer.when()
        self._timer.cancel()
        if late > _STOOD_STILL:
            self._timer = self._loop.call_later(seconds, self._over, seconds, act, arguments)
        else:
            act(*arguments)

    def cancel(self) -> None:
        """Do not call it any more."""
        self._timer.cancel()
