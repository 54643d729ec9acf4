"""Requests that were woken together go on a few at a time.

When a task ends, all who wait for it could spell its result in one pass of the event loop: others would wait
for that, and as many results would lie in memory at once.
"""

import asyncio
from collections import deque
from typing import Final

__all__ = ["Turns"]

_AT_ONCE: Final = 4
"""Those that go on in one pass of the event loop. A result of a megabyte takes each about a millisecond."""


class Turns:
    """A queue out of which the event loop takes a few in every pass."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a turn."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._next, loop)
        self._waiting.append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        left = _AT_ONCE
        while self._waiting and left:
            turn = self._waiting.popleft()
            if not turn.done():  # Whoever was cancelled takes nobody's turn.
                turn.set_result(None)
                left -= 1
        if self._waiting:
            loop.call_soon(self._next, loop)
