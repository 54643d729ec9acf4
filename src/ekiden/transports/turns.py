"""What messages take: memory for their values, and turns of the event loop. Servers and clients alike."""

import asyncio
from collections import deque
from typing import Final, Generic, TypeVar

from ekiden.wire.json import MAX_VALUES, count_values

__all__ = ["SMALL", "BodyTurns", "ByClient", "weight_of"]

T = TypeVar("T")

SMALL: Final = 4 * 1024
"""Bytes of a body that is never looked at for what it takes: that is a hundred KB at most. A larger one is
forgotten when it is read, before it is answered, and may have to wait for its turn."""

_PER_VALUE: Final = 128
"""What a value takes beside its text, about. An object of one member takes 240 bytes, and is two values."""

_HALVES: Final = tuple(f"\\u{digits}".encode() for digits in ("d8", "d9", "da", "db", "D8", "D9", "DA", "DB"))
"""How the escapes of characters begin that take four bytes."""


def weight_of(body: bytes, most_values: int = MAX_VALUES, *, roughly: bool = False) -> int:
    """The bytes that a body may take in memory when it is read: its texts, and its values beside them.

    `roughly` takes a fraction of the time, and takes commas in texts for values.
    """
    return _text_weight(body) + _PER_VALUE * count_values(body, most_values, roughly=roughly)


def _text_weight(body: bytes) -> int:
    """The bytes that the texts in a body may take.

    In a text, every character takes as much as the widest one: a single emoji makes four bytes of each
    letter. Python may keep such a text as UTF-8 besides.
    """
    is_escaped = b"\\u" in body
    if not is_escaped and body.isascii():
        return len(body)
    if any(bytes([lead]) in body for lead in range(0xF0, 0xF5)) or (
        is_escaped and any(half in body for half in _HALVES)
    ):
        return 5 * len(body)
    return 3 * len(body)


_AT_ONCE: Final = 128 * 1024
"""Bytes of bodies that are read before others have their turn. To read one, hold it to a schema and refuse it
takes up to 150 ns for each byte. A body may be larger."""
_PASSES: Final = 8
"""Passes of the event loop for others: a request that has come meanwhile is read and answered in them."""


class ByClient(Generic[T]):
    """What waits, by client: clients take turns, so that one that has much waiting holds up nobody else."""

    def __init__(self) -> None:
        self._of: dict[str, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, client: str, waiting: T) -> None:
        """Put something behind what else of its client waits."""
        self._of.setdefault(client, deque()).append(waiting)

    def next(self) -> T:
        """Take the first of the client whose turn it is."""
        client = next(iter(self._of))
        queue = self._of.pop(client)
        waiting = queue.popleft()
        if queue:
            self._of[client] = queue  # Behind those of others.
        return waiting


class BodyTurns:
    """Bodies that are whole at the same time are read a few at a time.

    Whoever sends many at once could have all of them read in one pass of the event loop, and others would
    wait for that. Clients that wait take turns, too: many bodies of one do not hold up that of another.
    """

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._left = _AT_ONCE
        self._resting = False
        self._waiting = ByClient[tuple[asyncio.Future[None], int]]()

    def take(self, client: str, size: int) -> "asyncio.Future[None] | None":
        """Take a turn for so many bytes; what is returned, if anything, is to be awaited before."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._begin(loop)  # That of before is closed, and with it all that has waited in it.
        if not self._resting:
            self._spend(loop, size)
            return None
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.add(client, (turn, size))
        return turn

    def _spend(self, loop: asyncio.AbstractEventLoop, size: int) -> None:
        self._left -= size
        if self._left <= 0 and not self._resting:
            self._resting = True
            loop.call_soon(self._rest, loop, _PASSES)

    def _rest(self, loop: asyncio.AbstractEventLoop, passes: int) -> None:
        """Let others have their turn, then some of those that wait."""
        if passes:
            loop.call_soon(self._rest, loop, passes - 1)
            return
        self._left, self._resting = _AT_ONCE, False
        while self._waiting and not self._resting:
            turn, size = self._waiting.next()
            if not turn.done():  # Else it was cancelled.
                turn.set_result(None)
                self._spend(loop, size)
