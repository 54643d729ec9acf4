"""Requests that come at the same moment, on any number of connections, are read and begun some at a time.

Thousands of connections may become readable in one pass of the event loop. To read and begin a request takes
a tenth of a millisecond and whatever its tool takes at once, and others would wait for all of them. So after
some, what a connection has brought waits for a turn, as it came: that takes far less. Clients take turns, and
of one client the request that came last, the one that has waited longest, and one that was sent behind
another of its connection: who calls in the midst of a flood from the same address, as behind a proxy, is
answered soon, and nobody waits for ever.
"""

import asyncio
import time
from collections import deque
from typing import Final, Protocol

__all__ = ["RequestTurns", "Waiting"]

_DIRECT: Final = 64
"""Requests that are read without a turn before one is answered; then the next has to take one."""
_FIRST: Final = 16
"""Turns in the first pass."""
_MOST: Final = 64
"""Turns in one pass of the event loop, if each takes little time: together some milliseconds."""
_LONG_SECONDS: Final = 0.02
_PASSES: Final = 8
"""After callbacks of one pass that took longer, there are half as many turns, and before them so many passes
for others: a request that was begun is answered in them. How long tools take at once is not known before."""


class Waiting(Protocol):
    """A connection that has something to read, or to begin."""

    network: str | None
    """Whose it is."""

    def take_turn(self) -> None:
        """Read and begin one request."""
        ...


class RequestTurns:
    """The turns of all connections of one process."""

    def __init__(self) -> None:
        self.left = self.most = _DIRECT
        """Requests that may be read now without a turn. Whoever reads one takes it off, and whoever has
        answered one sets it to what is the most now."""
        self._of: dict[str | None, _OfClient] = {}
        """Those that wait, by client."""
        self._turns = _FIRST
        self._resting = 0
        self._began = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which the next turns are given; None if nobody waits."""

    def wait(self, connection: Waiting, loop: asyncio.AbstractEventLoop, *, behind: bool) -> None:
        """Give a connection a turn, in another pass of the event loop. `behind` says that what it has to
        begin was sent behind another request."""
        self.left = self.most = 0
        if self._loop is not loop:
            self._loop, self._began = loop, time.monotonic()
            self._of.clear()  # The loop of before is closed, and with it all connections that waited in it.
            loop.call_soon(self._begin_pass, loop)
            loop.call_soon(self._give, loop)
        if (waiting := self._of.get(connection.network)) is None:
            waiting = self._of[connection.network] = _OfClient()
        (waiting.behind if behind else waiting.first).append(connection)

    def _begin_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        """This is called before all that was begun in the pass before: it was scheduled first."""
        self._began = time.monotonic()
        if self._loop is loop:
            loop.call_soon(self._begin_pass, loop)

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._resting:
            self._resting -= 1
        elif time.monotonic() - self._began > _LONG_SECONDS:
            self._turns, self._resting = max(1, self._turns // 2), _PASSES
        if self._resting:
            loop.call_soon(self._give, loop)
            return
        taking: list[Waiting] = []  # All at first: who has had a turn may come back for another one.
        while self._of and len(taking) < self._turns:
            taking.append(self._next())
        self._turns = min(_MOST, self._turns * 2)
        try:
            for connection in taking:
                connection.take_turn()
        finally:
            if self._of:
                loop.call_soon(self._give, loop)
            else:
                self._loop = None
                self.left = self.most = _DIRECT

    def _next(self) -> Waiting:
        """Take the next of the client whose turn it is."""
        client = next(iter(self._of))
        waiting = self._of.pop(client)
        taken = waiting.next()
        if waiting.first or waiting.behind:
            self._of[client] = waiting  # After those of others.
        return taken


class _OfClient:
    """What waits of one client."""

    def __init__(self) -> None:
        self.first: deque[Waiting] = deque()
        """Connections on which nothing else is being answered, in the order in which they came."""
        self.behind: deque[Waiting] = deque()
        self._given = 0

    def next(self) -> Waiting:
        """Take one. There must be one."""
        self._given += 1
        kind = self._given % 3
        if not self.first or (kind == 0 and self.behind):
            return self.behind.popleft()
        return self.first.pop() if kind == 1 else self.first.popleft()
