"""Caps on open connections: of the whole process, and of one address.

If the process has no room left, one that waits for its client makes room: it is idle, its request does not
arrive, or its TLS handshake is not done. It is one of the address that has most, if that has more than the
newcomer's; else one that has waited for some seconds. So whoever opens connections and sends nothing keeps
nobody else out. What is being answered is never closed.

Requests that workers hand on to each other take descriptors, too: one in either process. They count, and make
room in the same way.

If there is none, the new connection is answered with 503 and `Retry-After` before anything of it is read, and
closed. If many wait to be closed already, it is closed without an answer: whoever opens connections without
reading gets no memory for it.
"""

import asyncio
from collections import Counter
from typing import Any, Final, Protocol

from ekiden.transports.server.http1.sweeper import Sweeper, Timed
from ekiden.transports.server.proxies import network_of

__all__ = ["FULL", "Crowd", "Guest", "default_cap"]

FULL: Final = "Too many connections: try again later"

_SPARED_SECONDS: Final = 5.0
"""How long a connection may wait for its client before it makes room for one of an address with as many."""
_LOOK_SECONDS: Final = 1.0
_LOOK_AGAIN_SECONDS: Final = 0.05
"""How often all connections are looked through for those that wait, and if none of them is left. There may be
thousands."""
_MOST_TOLD: Final = 50
"""Connections that are told why they are turned away, at a time. Each has a file descriptor meanwhile."""
_LEAST_SPARE: Final = 100
_MOST_SPARE: Final = 256
"""File descriptors that are left to stores, files and refusals, if there are enough."""


def default_cap() -> int | None:
    """Almost as many connections as there are file descriptors; None if there is no limit to those."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return None
    return max(most // 2, most - min(_MOST_SPARE, max(_LEAST_SPARE, most // 8)))


class Guest(Timed, Protocol):
    """A connection that can be turned away."""

    network: str | None
    """What it is counted by; None for another worker."""

    @property
    def waits_since(self) -> float | None:
        """Since when it waits for its client, by the loop's clock; None while a request is answered."""
        ...

    def turn_away(self, reason: str) -> None:
        """Refuse all that comes on this connection."""
        ...

    def make_room(self) -> None:
        """Close the connection at once: others need its place."""
        ...


class Crowd(Sweeper):
    """The open connections of a process that takes only so many."""

    def __init__(self, seconds: float, most: int | None, most_of_one: int | None) -> None:
        super().__init__(seconds)
        self._most = most
        self._most_of_one = most_of_one
        self._most_told = min(_MOST_TOLD, most or most_of_one or _MOST_TOLD)
        self._of_address: Counter[str] = Counter()
        self._welcome: dict[Guest, str] = {}
        self._of_workers: set[Guest] = set()
        """Over these other workers hand requests on to this one."""
        self._handed_on = 0
        """Requests that this one hands on to other workers."""
        self._turned_away: set[Guest] = set()
        self._waiting = _Waiting()

    def add(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Look after a connection from now on, or turn it away."""
        super().add(connection, loop)
        guest: Guest = connection
        is_worker = guest.network is None
        address = guest.network or ""
        reason = self._full(address, loop.time())
        if reason is None and is_worker:
            self._of_workers.add(guest)
        elif reason is None:
            self._welcome[guest] = address
            self._of_address[address] += 1
        elif len(self._turned_away) < self._most_told:
            self._turned_away.add(guest)
            guest.turn_away(reason)
        else:
            guest.make_room()

    def _full(self, address: str, now: float) -> str | None:
        """Why there is no room for one more."""
        if address and self._most_of_one is not None and self._of_address[address] >= self._most_of_one:
            return "Too many connections from your address: close some, or try again later"
        return None if self._has_room(address, now) else FULL

    def _has_room(self, address: str, now: float) -> bool:
        """Whether there is room for one more, perhaps because another makes room."""
        taken = len(self._welcome) + len(self._of_workers) + self._handed_on
        if self._most is None or taken < self._most:
            self._waiting.forget()
            return True
        return self._make_room(address, now)

    def hand_on(self, address: str | None, now: float) -> bool:
        """Take a descriptor to hand a request on to another worker; False if there is none."""
        has_room = self._has_room("" if address is None else network_of(address), now)
        self._handed_on += has_room
        return has_room

    def handed_on(self) -> None:
        """It is given back."""
        self._handed_on -= 1

    def _make_room(self, address: str, now: float) -> bool:
        """Close a connection that waits for its client, for one of this address."""
        self._waiting.look(self._welcome, self._of_address, now)
        has = self._of_address[address]
        for found, is_crowded in ((self._waiting.by_crowd, True), (self._waiting.by_time, False)):
            while found:
                since, guest = found[-1]
                of = self._welcome.get(guest)
                if of is not None and guest.waits_since == since:
                    if (self._of_address[of] <= has + 1) if is_crowded else (now - since < _SPARED_SECONDS):
                        break
                    self._let_go(guest)
                    guest.make_room()
                    return True
                found.pop()
        return False

    def discard(self, connection: Any) -> None:
        """The connection is closed."""
        super().discard(connection)
        self._turned_away.discard(connection)
        self._of_workers.discard(connection)
        self._let_go(connection)

    def _let_go(self, guest: Guest) -> None:
        address = self._welcome.pop(guest, None)
        if address is not None:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]


class _Waiting:
    """Connections that wait for their clients, as they were when all were looked through the last time."""

    def __init__(self) -> None:
        self.by_crowd: list[tuple[float, Guest]] = []
        """Those of the address that had most are last; of one address, who has waited longest."""
        self.by_time: list[tuple[float, Guest]] = []
        """Those that have waited longest are last."""
        self._looked_at = float("-inf")

    def look(self, welcome: dict[Guest, str], of_address: Counter[str], now: float) -> None:
        """Look through all, unless that was done a moment ago."""
        if now - self._looked_at < (_LOOK_SECONDS if self.by_time else _LOOK_AGAIN_SECONDS):
            return
        self._looked_at = now
        found = [(since, guest) for guest in reversed(welcome) if (since := guest.waits_since) is not None]
        self.by_time = sorted(found, key=lambda each: -each[0])
        self.by_crowd = sorted(self.by_time, key=lambda each: of_address[welcome[each[1]]])

    def forget(self) -> None:
        """There is room: those that are closed by now must not stay in memory."""
        if self.by_time:
            self.by_crowd, self.by_time = [], []
            self._looked_at = float("-inf")
