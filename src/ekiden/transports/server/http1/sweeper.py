"""The time limits of connections, kept by one timer for all of them.

A timer for each request would cost more than a look at every connection once in a while.
"""

import asyncio
from typing import Protocol

__all__ = ["Sweeper", "Timed"]


class Timed(Protocol):
    """A connection with time limits."""

    def look(self, now: float) -> None:
        """Close the connection if something takes too long on it."""
        ...


class Sweeper:
    """Looks at all open connections every `seconds`, as long as there are any."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: set[Timed] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Timed, loop: asyncio.AbstractEventLoop) -> None:
        """Look after a connection from now on."""
        self._open.add(connection)
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._sweep, loop)

    def discard(self, connection: Timed) -> None:
        """The connection is closed."""
        self._open.discard(connection)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in tuple(self._open):
            connection.look(now)
        self._timer = loop.call_later(self._seconds, self._sweep, loop) if self._open else None
