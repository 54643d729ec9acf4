"""What subscriptions take of a process: how many there are, and the bytes of what they name."""

from typing import Final

from ekiden.errors import InternalError
from ekiden.transports.server.shares import Shares

__all__ = ["SubscriptionRoom", "size_of"]

_MOST_SUBSCRIPTIONS: Final = 10_000
"""Open subscriptions of one process. Each is an idle stream of some 20 KB."""
_MOST_BYTES_EACH: Final = 16 * 1024 * 1024
"""Bytes of the URIs and ids in all subscriptions of one client, as far as clients are told apart."""
_MOST_BYTES_OF_ALL: Final = 64 * 1024 * 1024 * 4 // 5
"""The same for all subscriptions of one process; with what is left for clients that have almost none, 64 MiB.
One that only wants to know of lists takes none of it."""
_PER_NAME: Final = 256
"""Bytes that a URI takes in memory beside its own."""
_FULL: Final = "Too many subscriptions are open"


def size_of(name: str) -> int:
    """The bytes that a URI, or an id, takes in memory, about."""
    return _PER_NAME + len(name)


class SubscriptionRoom:
    """Counts what each client takes. What sessions remember without a stream counts, too."""

    def __init__(self) -> None:
        self._streams = Shares(_MOST_SUBSCRIPTIONS)
        self._bytes = Shares(_MOST_BYTES_OF_ALL)

    def enter(self, client: str, size: int) -> None:
        """Count one more subscription, and its bytes; `InternalError` if that is too much."""
        if not self._streams.has(client):
            raise InternalError(_FULL)
        self.hold(client, size)
        self._streams.add(client)

    def leave(self, client: str, size: int) -> None:
        """It has ended."""
        self._streams.give_back(client)
        self.release(client, size)

    def hold(self, client: str, size: int) -> None:
        """Count bytes that a client wants to be remembered; `InternalError` if they are too many."""
        if size and client and self._bytes.of(client) + size > _MOST_BYTES_EACH:
            raise InternalError("Too many of your subscriptions are open")
        if size and not self._bytes.has(client, size):
            raise InternalError(_FULL)
        self._bytes.add(client, size)

    def count(self, client: str, size: int) -> None:
        """Count bytes that another process has taken: they are not refused."""
        self._bytes.add(client, size)

    def release(self, client: str, size: int) -> None:
        """They are forgotten."""
        self._bytes.give_back(client, size)

    def held(self, client: str) -> int:
        """The bytes of a client."""
        return self._bytes.of(client)
