"""Caps on open connections: of the whole process, and of one address.

A connection above a cap is accepted, answered with 503 and `Retry-After` before anything of it is read, and
closed. If as many as that wait to be closed already, it is closed without an answer: whoever opens
connections without reading gets no memory for it.
"""

import asyncio
from collections import Counter
from typing import Any, Protocol

from ekiden.transports.server.http1.sweeper import Sweeper, Timed
from ekiden.transports.server.proxies import network_of

__all__ = ["Crowd", "Guest"]


class Guest(Timed, Protocol):
    """A connection that can be turned away."""

    transport: Any

    def turn_away(self, reason: str) -> None:
        """Refuse all that comes on this connection."""
        ...


class Crowd(Sweeper):
    """The open connections of a process that takes only so many. Those of other workers do not count."""

    def __init__(self, seconds: float, most: int | None, most_of_one: int | None) -> None:
        super().__init__(seconds)
        self._most = most
        self._most_of_one = most_of_one
        self._of_address: Counter[str] = Counter()
        self._welcome: dict[Guest, str] = {}
        self._turned_away: set[Guest] = set()

    def add(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Look after a connection from now on, or turn it away."""
        super().add(connection, loop)
        guest: Guest = connection
        peer: Any = guest.transport.get_extra_info("peername")
        if peer.__class__ is not tuple:
            return  # Another worker passes on a request of a client that it has let in.
        address = network_of(peer[0])
        reason = self._full(address)
        if reason is None:
            self._welcome[guest] = address
            self._of_address[address] += 1
        elif len(self._turned_away) < (self._most or self._most_of_one or 0):
            self._turned_away.add(guest)
            guest.turn_away(reason)
        else:
            guest.transport.abort()

    def _full(self, address: str) -> str | None:
        """Why there is no room for one more."""
        if self._most is not None and len(self._welcome) >= self._most:
            return "Too many connections: try again later"
        if self._most_of_one is not None and self._of_address[address] >= self._most_of_one:
            return "Too many connections from your address: close some, or try again later"
        return None

    def discard(self, connection: Any) -> None:
        """The connection is closed."""
        super().discard(connection)
        self._turned_away.discard(connection)
        address = self._welcome.pop(connection, None)
        if address is not None:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]
