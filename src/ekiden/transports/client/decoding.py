"""From bytes of a server to a message, a few at a time.

A server decides how many of its messages become whole at the same time, and three megabytes of empty lists
take ninety as objects of Python. So large messages are decoded in turns, which all servers of a process
share: what one of them sends keeps nobody waiting for a message of another. And what has been decoded counts
by its values for as long as somebody in between holds it, such as a gateway whose client does not read.
"""

import asyncio
import threading
from collections import deque
from typing import Any, Final

from ekiden.errors import TooManyValues, TooMuch
from ekiden.transports.shares import Shares
from ekiden.transports.turns import SMALL, BodyTurns, weight_of
from ekiden.wire import jsonrpc

__all__ = ["SMALL", "Decoding", "Held"]

MOST: Final = 256 * 1024 * 1024
"""Bytes of memory that the decoded messages of all servers may take which are held, and those that are about
to be decoded. There are a quarter more for servers that hold almost none."""
_WAIT_SECONDS: Final = 30.0
"""How long a message waits until there is room for it."""
_COUNTED: Final = 64 * 1024
"""A message that takes more bytes in memory is counted."""


class _Room:
    """What the messages of all servers share in one event loop."""

    def __init__(self, most: int) -> None:
        self.turns = BodyTurns()
        self._shares = Shares(most)
        self._held = 0
        self._waiting: dict[str, deque[tuple[asyncio.Future[None], int]]] = {}
        """Those for which there is no room, by server. Servers take turns."""

    async def take(self, server: str, weight: int) -> bool:
        """Make room for a message, and wait for it if there is none; whether it had to wait."""
        if server not in self._waiting and self._has_taken(server, weight):
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(server, deque()).append((turn, weight))
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(server, weight)  # There was room just now.
            turn.cancel()
            self._admit()  # Those behind it may be smaller.
            if not isinstance(error, TimeoutError):
                raise
            raise TooMuch(
                f"Messages of servers that nobody has taken yet hold {MOST} bytes of memory: "
                "there was no room for another one"
            ) from None
        return True

    def _has_taken(self, server: str, weight: int) -> bool:
        if not self._held:
            self._shares.add(server, weight)  # Larger than all room, it is decoded alone.
        elif not self._shares.take(server, weight):
            return False
        self._held += weight
        return True

    def give_back(self, server: str, weight: int) -> None:
        """It is not held any more."""
        if weight:
            self._held -= weight
            self._shares.give_back(server, weight)
            self._admit()

    def _admit(self) -> None:
        """Let those go on that wait for room, one of each server in turn."""
        admitted = bool(self._waiting)
        while admitted:
            admitted = False
            for server in tuple(self._waiting):
                queue = self._waiting.pop(server)
                while queue and queue[0][0].done():
                    queue.popleft()  # It was cancelled.
                if queue and self._has_taken(server, queue[0][1]):
                    queue.popleft()[0].set_result(None)
                    admitted = True
                if queue:
                    self._waiting[server] = queue


class _Here(threading.local):
    loop: asyncio.AbstractEventLoop | None = None
    room: _Room | None = None


_here: Final = _Here()


def _room() -> _Room:
    """The room of the event loop that runs. That of one before is gone with it."""
    loop = asyncio.get_running_loop()
    if _here.room is None or _here.loop is not loop:
        _here.loop, _here.room = loop, _Room(MOST)
    return _here.room


class Held:
    """What counts of one request's messages until its result has been passed on. Always `drop` it."""

    __slots__ = ("_counted", "_dropped")

    def __init__(self) -> None:
        self._dropped = False
        self._counted: list[tuple[_Room, str, int]] = []

    def add(self, room: _Room, server: str, weight: int) -> None:
        """A message counts from now on; it has counted while it was decoded."""
        self._counted.append((room, server, weight))
        if self._dropped:
            self.drop()

    def drop(self) -> None:
        """They have been passed on, or nobody wants them."""
        self._dropped = True
        while self._counted:
            room, server, weight = self._counted.pop()
            room.give_back(server, weight)


class Decoding:
    """Decodes the messages of one server. Those with the same name take turns as one."""

    def __init__(self, server: str, most_values: int | None = None) -> None:
        self._server = server
        self._most_values = jsonrpc.MOST_VALUES if most_values is None else most_values

    def now(self, data: bytes) -> dict[str, Any]:
        """A small message, decoded at once. `ProtocolError`, or `TooMuch` if it has too many values."""
        try:
            return jsonrpc.parse_from_server(data, self._most_values)
        except TooManyValues:
            raise TooMuch(f"The server sent a message of more than {self._most_values} values") from None

    async def in_turn(self, data: bytes) -> "Decoded":
        """A message of more than `SMALL` bytes, when its turn has come. `TooMuch` also if there is no room.

        What is returned counts: `pass_to` whoever holds the message, at once.
        """
        room, size = _room(), len(data)
        if (turn := room.turns.take(self._server, size)) is not None:
            await turn
        weight = weight_of(data, self._most_values, roughly=True)
        if weight <= _COUNTED:
            weight = 0
        elif await room.take(self._server, weight):
            # Room comes for many at once.
            try:
                if (turn := room.turns.take(self._server, size)) is not None:
                    await turn
            except BaseException:
                room.give_back(self._server, weight)
                raise
        try:
            return Decoded(self.now(data), room, self._server, weight)
        except BaseException:
            room.give_back(self._server, weight)
            raise


class Decoded:
    """A message that counts until it is passed on."""

    __slots__ = ("_room", "_server", "_weight", "message")

    def __init__(self, message: dict[str, Any], room: _Room, server: str, weight: int) -> None:
        self.message = message
        self._room = room
        self._server = server
        self._weight = weight

    def pass_to(self, held: Held | None) -> dict[str, Any]:
        """The message. It counts until `held` is dropped; without one it is its receiver's from now on."""
        if held is None:
            self._room.give_back(self._server, self._weight)
        elif self._weight:
            held.add(self._room, self._server, self._weight)
        return self.message
