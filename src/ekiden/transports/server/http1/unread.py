"""Responses that clients do not read: how much of them all connections hold together.

What a client has not taken yet lies in memory. One that reads nothing, or a little now and then, could keep
any number of large responses there. So all together may be so large; above that, connections are cut of
whoever has most, the one first that has been behind for longest.
"""

from collections import Counter
from typing import Any, Protocol

__all__ = ["Behind", "Unread"]


class Behind(Protocol):
    """A connection whose client reads more slowly than we write."""

    transport: Any
    network: str | None
    """Whose it is."""


class Unread:
    """Bytes of responses that lie in memory, of those connections that hold more than a little."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._of: dict[Behind, int] = {}
        """Bytes of each, those that have been behind for longest first."""

    def hold(self, connection: Behind, size: int) -> None:
        """A connection holds so many bytes now. If all hold too many, some are cut."""
        self._total += size - self._of.get(connection, 0)
        self._of[connection] = size
        while self._total > self._most:
            self._cut_one()

    def release(self, connection: Behind) -> None:
        """The client has caught up, or is gone."""
        self._total -= self._of.pop(connection, 0)

    def _cut_one(self) -> None:
        """Cut a connection of whoever has most."""
        by_network: Counter[str | None] = Counter()
        for connection, size in self._of.items():
            by_network[connection.network] += size
        greedy, _ = by_network.most_common(1)[0]
        cut = next(each for each in self._of if each.network == greedy)
        self.release(cut)
        cut.transport.abort()
