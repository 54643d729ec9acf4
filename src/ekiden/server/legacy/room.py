"""How many sessions each client has, and whose session makes room for one more.

If there are too many, one makes room that was not used for a while. It belongs to a client that has at least
as many as the new one: whoever opens thousands can only end sessions of its own. A client with many fewer
than others gets the place of one of theirs, however short a time ago that was used.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from ekiden.server.legacy.keeper import SessionLimits
from ekiden.signals import SessionsFull
from ekiden.transports.server.shares import Shares

__all__ = ["Roomer", "SessionRoom"]


class Roomer(Protocol):
    """The part of a session that matters here."""

    principal: str
    client: str
    """Whose session it is, as far as clients are told apart: a principal, or an address."""
    used_at: float

    @property
    def in_use(self) -> bool:
        """Whether a request runs, or a stream is open."""
        ...


S = TypeVar("S", bound=Roomer)

_FULL: Final = "Too many sessions are open; try again later"
_LOOK_SECONDS: Final = 1.0
"""How often all sessions are looked through at most, for one client, while none of them can be ended."""
_MOST_LOOKS: Final = 1000
_GREEDY: Final = 1 / 4
"""Who has more of all sessions than this ends no session of others to make room."""


class SessionRoom:
    """Counts the sessions of one process."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._per_principal: Counter[str] = Counter()
        self._per_client: Counter[str] = Counter()
        self._shares = Shares(limits.sessions)
        self._in_vain: dict[str, float] = {}
        """Until when there is nothing to end for a client, for which it was looked before."""

    def enter(self, session: Roomer) -> None:
        """There is one more."""
        self._per_principal[session.principal] += 1
        self._per_client[session.client] += 1
        self._shares.add(session.client)

    def leave(self, session: Roomer) -> None:
        """It has ended."""
        self._shares.give_back(session.client)
        for counter, name in (
            (self._per_principal, session.principal),
            (self._per_client, session.client),
        ):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]

    def more_for(self, client: str) -> int:
        """How many sessions there may be beyond the limit, if the next one is of this client."""
        return self._shares.more if self._shares.is_modest(client) else 0

    def is_greedy(self, client: str) -> bool:
        """Whether a client has many of the sessions that there may be."""
        return self._per_client[client] > self._limits.sessions * _GREEDY

    def to_end(self, sessions: Mapping[str, S], principal: str, client: str) -> list[S]:
        """The sessions to end for one more of this client; `SessionsFull` if there is no room."""
        limits, ended = self._limits, list[S]()
        if principal and self._per_principal[principal] >= limits.per_principal:
            found = self._looked(client, lambda: (s for s in sessions.values() if s.principal == principal))
            ended.append(_required(found))
        if len(sessions) - len(ended) >= limits.sessions:
            found = self._of_others(sessions, client)
            if found is not None:
                ended.append(found)
            elif not self._shares.has(client):
                raise SessionsFull(_FULL)
        return ended

    def _of_others(self, sessions: Mapping[str, S], client: str) -> S | None:
        has = self._per_client[client]
        greedy, most = max(self._per_client.items(), key=lambda item: item[1], default=("", 0))
        if most > has + 1:
            theirs = [each for each in sessions.values() if each.client == greedy and not each.in_use]
            if theirs:
                return min(theirs, key=lambda each: each.used_at)
        return self._looked(
            client, lambda: (s for s in sessions.values() if self._per_client[s.client] >= has)
        )

    def _looked(self, client: str, among: Callable[[], Iterable[S]]) -> S | None:
        """The same as `unused`, but one client cannot have thousands of sessions looked through again and
        again."""
        now = asyncio.get_running_loop().time()
        if now < self._in_vain.get(client, now):
            return None
        found = self.unused(among())
        if found is None:
            if len(self._in_vain) >= _MOST_LOOKS:
                self._in_vain.clear()
            self._in_vain[client] = now + min(_LOOK_SECONDS, self._limits.busy_seconds / 4)
        return found

    def unused_of(self, client: str, sessions: Mapping[str, S]) -> S | None:
        """The session of a client that was unused for longest, and for a while."""
        return self._looked(client, lambda: (s for s in sessions.values() if s.client == client))

    def unused(self, sessions: Iterable[S]) -> S | None:
        """The session that was unused for longest, if it is not in use and was not for a while."""
        idle = [each for each in sessions if not each.in_use]
        oldest = min(idle, key=lambda each: each.used_at, default=None)
        if oldest is None or asyncio.get_running_loop().time() - oldest.used_at < self._limits.busy_seconds:
            return None
        return oldest


def _required(session: S | None) -> S:
    if session is None:
        raise SessionsFull(_FULL)
    return session
