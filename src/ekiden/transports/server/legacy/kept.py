"""What is kept of streams for clients of 2025 that may come back: how many bytes all of them take together.

Above the limit, what is kept of a stream is given up: of the client that has most, the stream first whose
last event is oldest. A stream that a client is reading is not given up.
"""

import heapq
from typing import Final, Protocol

__all__ = ["KeptBytes"]

_ENOUGH: Final = 15 / 16
"""The part of the limit that is taken after some were given up."""


class _Kept(Protocol):
    """A stream of which something is kept."""

    @property
    def connection(self) -> object:
        """Who reads it now; None if nobody does."""
        ...

    def give_up(self) -> None:
        """Keep nothing of it."""
        ...


class KeptBytes:
    """Counts the bytes that are kept for each client."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._of: dict[str, dict[_Kept, int]] = {}
        """The bytes of each stream by client, those first whose last event is oldest."""

    def hold(self, client: str, stream: _Kept, size: int) -> None:
        """A stream keeps so many bytes now. If all keep too many, some are given up."""
        mine = self._of.setdefault(client, {})
        self._total += size - mine.pop(stream, 0)
        if size:
            mine[stream] = size
        elif not mine:
            del self._of[client]
        if size and self._total > self._most:
            self._make_room()

    def _make_room(self) -> None:
        """Give up more than must be, so that not all clients are compared for each event."""
        most_first = [(-sum(mine.values()), client) for client, mine in self._of.items()]
        heapq.heapify(most_first)
        while self._total > self._most * _ENOUGH and most_first:
            size, client = heapq.heappop(most_first)
            mine = self._of.get(client, {})
            given = next((stream for stream in mine if stream.connection is None), None)
            if given is not None:
                heapq.heappush(most_first, (size + mine[given], client))
                given.give_up()
