"""Messages of one server that have come in part.

A server decides how long it takes to send the rest of a message. So what has come of all of them is bounded
together, not only each message: otherwise it could have its clients hold as many as they have calls.
"""

import itertools
import math
from typing import Final

from ekiden.errors import TooMuch

__all__ = ["Arriving", "Part"]

_SMALL: Final = 64 * 1024
"""Messages up to this many bytes are not counted: most end with the piece that they begin with."""


_numbers = itertools.count(1)


class Arriving:
    """What has come of the messages of one server."""

    def __init__(self, most: float = math.inf) -> None:
        self.server = str(next(_numbers))
        """What the server is called here, among all of this process."""
        self._most = most
        self._bytes = 0

    def part(self) -> "Part":
        """A message that begins to come."""
        return Part(self)

    def change(self, before: int, now: int) -> None:
        """One message has so many bytes now; `TooMuch` if all have more than they may."""
        held = self._bytes - before + now
        if now > before and held > self._most:
            raise TooMuch(f"The server keeps more than {self._most} bytes of unfinished messages waiting")
        self._bytes = held


class Part:
    """What has come of one message, or of one stream of messages. Always `end` it."""

    __slots__ = ("_of", "_size")

    def __init__(self, of: Arriving) -> None:
        self._of = of
        self._size = 0

    def has(self, size: int) -> None:
        """So many bytes have come, and the message is not whole yet; `TooMuch` if they cannot be kept."""
        counted = size if size > _SMALL else 0
        if counted != self._size:
            self._of.change(self._size, counted)
            self._size = counted

    def end(self) -> None:
        """It is whole, or given up."""
        self.has(0)
