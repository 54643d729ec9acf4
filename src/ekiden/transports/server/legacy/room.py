"""What requests of clients of 2025 take of a process.

They go on when their client leaves, so that connections do not limit how many there are, nor what they hold.
"""

from typing import Final

from ekiden.transports.server.budget import head_weight, weight_of
from ekiden.transports.server.shares import Shares, client_of
from ekiden.wire.incoming import Incoming

__all__ = ["Guest", "RequestRoom"]

_SMALL: Final = 4 * 1024
"""A request that takes more bytes, with its head, takes them of the budget."""


class RequestRoom:
    """Counts calls, other messages while they wait for the store, and the bytes of both."""

    def __init__(self, bodies: Shares, most_running: int) -> None:
        self.bodies = bodies
        self.calls = Shares(most_running)
        self.arrivals = Shares(most_running)
        """Requests of which it is not known yet what they are, or that let others end: answers and
        cancellations have room where calls have none."""

    def enter(self, incoming: Incoming) -> "Guest | None":
        """Take room for a request that has come in; None if there is none."""
        client = client_of(incoming)
        weight = head_weight(incoming) + weight_of(incoming.body, incoming.most_values)
        held = weight if weight > _SMALL else 0
        if not self.arrivals.take(client):
            return None
        if not self.bodies.take(client, held):
            self.arrivals.give_back(client)
            return None
        return Guest(self, client, held)


class Guest:
    """One HTTP request, and what it takes."""

    def __init__(self, room: RequestRoom, client: str, held: int) -> None:
        self.client = client
        self._room = room
        self._held = held
        self._has_arrived = self._stays = False

    def arrived(self) -> None:
        """It waits for nothing more, or only as long as its client does; or its calls are counted."""
        if not self._has_arrived:
            self._has_arrived = True
            self._room.arrivals.give_back(self.client)

    def stay(self) -> None:
        """What it holds is held until `leave`, however its connection ends."""
        self._stays = True

    def leave(self) -> None:
        """Nothing is held any more."""
        self._room.bodies.give_back(self.client, self._held)
        self._held = 0

    def __enter__(self) -> "Guest":
        return self

    def __exit__(self, *_: object) -> None:
        self.arrived()
        if not self._stays:
            self.leave()
