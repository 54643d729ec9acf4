"""The answers of one channel, such as a pipe: they are spelled one after another, when the client takes them.

A client may send any number of requests and read nothing. What waits is counted, so that further handlers
begin only when it has read some; of what was under way already, some is given up if it is too much.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from ekiden.transports.server.large.held import HeldBytes
from ekiden.transports.server.large.results import MOST
from ekiden.transports.server.reply import LARGE

__all__ = ["Outbox"]

T = TypeVar("T")

_ENOUGH: Final = MOST // 8
"""Bytes that wait before no further handler begins."""


class Outbox:
    """Sends answers over one channel, in the order in which they are ready."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._sending = asyncio.Lock()
        self._held = HeldBytes(MOST)
        self._freed = asyncio.Event()
        self._entering = asyncio.Lock()

    async def room(self) -> None:
        """Wait until a handler may begin: one in each pass of the loop, so that what it returns counts."""
        async with self._entering:
            while self._held.total > _ENOUGH:
                self._freed.clear()
                await self._freed.wait()
            await asyncio.sleep(0)

    async def send(self, answer: T, size: int, spell: Callable[[T | None], Awaitable[bytes]]) -> None:
        """Send an answer of about so many bytes. `spell` gets None instead of it if it was given up.

        Whoever awaits this holds the answer no longer.
        """
        waiting = _Unsent(self._held, answer)
        del answer
        if size > LARGE:
            waiting.hold(size)
        try:
            async with self._sending:
                spelling = spell(waiting.take())
                if response := await spelling:  # An empty one is not to be sent.
                    del spelling
                    await self._send(response)
        finally:
            waiting.hold(0)
            self._freed.set()


class _Unsent(Generic[T]):
    """An answer that waits. Implements `held.Held`."""

    is_read = True

    def __init__(self, held: HeldBytes, answer: T) -> None:
        self._held = held
        self._answer = [answer]

    def hold(self, size: int) -> None:
        """It has so many bytes. One alone is never too much."""
        self._held.hold("", self, min(size, self._held.most * 7 // 8))

    def take(self) -> T | None:
        """The answer, if it was not given up."""
        return self._answer.pop() if self._answer else None

    def give_up(self) -> None:
        """It is not sent: others need the memory."""
        self._answer.clear()
        self.hold(0)
