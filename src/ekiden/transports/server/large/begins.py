"""Handlers begin a few at a time; those that return much do not while large results wait in memory.

Many calls may come in one pass of the event loop. If all of their handlers began in it, all could return
large values before the first of these is made into a result, sent, and forgotten. How long a handler runs
plays no part: one that waits keeps nobody from beginning.
"""

import asyncio
from typing import Final, Protocol, TypeAlias

from ekiden.transports.server.budget import ByClient

__all__ = ["FEW", "THREADS", "BeginTurns"]

_IN_A_PASS: Final = 32
"""Handlers that begin in one pass of the event loop."""
FEW: Final = 16
"""If no more are left, it is asked whether a new pass has begun. So a few handlers cost nothing."""
THREADS: Final = 40
"""Plain functions that may run at once: more than a machine has cores, for they mostly wait."""

_Queue: TypeAlias = ByClient[asyncio.Future[None]]


class Returning(Protocol):
    """A handler."""

    returns_much: bool
    """Whether it is known to return large values."""


class BeginTurns:
    """Who may begin at once, and who waits. Those who wait take turns by `client`, in the order they came."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.forget()

    def forget(self) -> None:
        """Begin anew: the event loop is gone in which some have waited."""
        self._held_up = self._ticks = False
        self.left = _IN_A_PASS
        """How many more may begin in this pass of the event loop: whoever begins takes one."""
        self._room = 1
        """How many of those that are held back may begin in the next pass."""
        self._threads = THREADS
        self._waiting, self._held_back, self._plain = _Queue(), _Queue(), _Queue()
        """Those that wait for the next pass, until less is held, and for a thread."""

    def hold_up(self, held_up: bool) -> None:
        """Whether those that return much have to wait. Afterwards one begins, then two, and so on."""
        if held_up is not self._held_up:
            self._is_here()
            self._held_up, self._room = held_up, 1
            self._tick()

    def full(self) -> bool:
        """Whether no more may begin in this pass. Ask if few are `left`."""
        if not self._ticks:
            self._is_here()
            self._tick()
        return self.left <= 0

    async def turn(self, client: str, handler: Returning) -> None:
        """Wait until a handler may begin, if it must."""
        self._is_here()
        if self.full():
            await self._wait(self._waiting, client)
            self.left += 1  # It was taken when the turn came.
        while self._held_up and handler.returns_much:
            await self._wait(self._held_back, client)

    async def thread(self, client: str, handler: Returning) -> None:
        """Wait until there is a thread for a plain function. Tell when it is `freed`."""
        self._is_here()
        if self._threads > 0 and not self._plain:
            self._threads -= 1
        else:
            await self._wait(self._plain, client)
        while self._held_up and handler.returns_much:
            self.freed()
            await self._wait(self._held_back, client)
            await self._wait(self._plain, client)

    def freed(self) -> None:
        """A thread has ended."""
        self._threads += 1
        if self._plain:
            self._tick()

    async def _wait(self, queue: _Queue, client: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.add(client, turn)
        self._tick()
        try:
            await turn
        except asyncio.CancelledError:
            if queue is self._plain and not turn.cancelled():
                self.freed()
            raise

    def _is_here(self) -> bool:
        """Whether what is counted happens in this event loop, and not in one that has stopped."""
        if self._loop is (loop := asyncio.get_running_loop()):
            return True
        self._loop = loop
        self.forget()
        return False

    def _tick(self) -> None:
        if not self._ticks:
            self._ticks = True
            asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._ticks = False
        self.left = _IN_A_PASS
        self.left -= _admit(self._waiting, self.left)
        self._threads -= _admit(self._plain, self._threads)
        if not self._held_up:
            _admit(self._held_back, self._room)
            self._room = min(2 * self._room, _IN_A_PASS)
        if self.left < _IN_A_PASS or (self._held_back and not self._held_up):
            self._tick()


def _admit(queue: _Queue, most: int) -> int:
    """Let so many begin; how many there were."""
    admitted = 0
    while queue and admitted < most:
        turn = queue.next()
        if not turn.done():  # Else it was cancelled.
            turn.set_result(None)
            admitted += 1
    return admitted
