"""What is held for clients: how many bytes all of it takes together.

Above a limit, what is held is given up: always of the client that has most, so that nobody else feels what
one client takes, and of it what has grown least lately.
"""

import heapq
from typing import Final, Protocol

__all__ = ["Held", "HeldBytes"]

_ENOUGH: Final = 15 / 16
"""The part of the limit that is taken after some were given up."""


class Held(Protocol):
    """A stream, or the responses of a batch."""

    @property
    def is_read(self) -> bool:
        """Whether its client reads it, or is about to."""
        ...

    def give_up(self) -> None:
        """Hold nothing of it, and close the connection over which it is read."""
        ...


class HeldBytes:
    """Counts the bytes that are held for each client."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        """The bytes that are held for all of them."""
        self._of: dict[str, dict[Held, int]] = {}
        """The bytes by client, those first that were counted longest ago."""

    def hold(self, client: str, held: Held, size: int) -> None:
        """So many bytes are held of this now. If all together are too many, some are given up."""
        mine = self._of.setdefault(client, {})
        self.total += size - mine.pop(held, 0)
        if size:
            mine[held] = size
        elif not mine:
            del self._of[client]
        if size and self.total > self.most:
            self._make_room()

    def _make_room(self) -> None:
        """Give up more than must be, so that not all clients are compared for each event."""
        most_first = [(-sum(mine.values()), client) for client, mine in self._of.items()]
        heapq.heapify(most_first)
        while self.total > self.most * _ENOUGH and most_first:
            size, client = heapq.heappop(most_first)
            if mine := self._of.get(client):
                given = next(iter(mine))
                heapq.heappush(most_first, (size + mine[given], client))
                given.give_up()
