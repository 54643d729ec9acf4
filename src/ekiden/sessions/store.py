"""The port between shared sessions and their stores.

A store keeps sessions, the questions that were put to their clients, and the events of their streams. What
the bytes mean is not its business. The promises that every store makes, and that
`ekiden.testing.SessionStoreContract` checks:

1. What a method did is done when it returns, all or nothing, and seen by every process.
2. Everything is bounded: sessions by `Room`, events by their stream's `first`, ended streams by `MOST_ENDED`.
3. With a session goes all that belongs to it.
"""

import abc
from collections.abc import Callable, Collection
from typing import Final

import msgspec

__all__ = [
    "ABANDONED_SECONDS",
    "MOST_ENDED",
    "Room",
    "SessionRow",
    "SessionStore",
    "StreamPart",
    "StreamView",
]

MOST_ENDED: Final = 4
"""Streams of a session that are kept although they have ended."""
ABANDONED_SECONDS: Final = 3600.0
"""How long a stream is kept whose lease was not renewed: a process that was killed ends none of its own."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One session as it is stored."""

    key: str
    """Not its id, which is a secret, but a digest of it."""
    audience: str
    """The server that it belongs to."""
    principal: str
    used: float
    expires: float
    data: bytes


class Room(msgspec.Struct, frozen=True):
    """How many sessions there may be, and which may be ended to make room for one more."""

    sessions: int
    """Of one audience."""
    per_principal: int
    unused_since: float
    """The one that was unused for longest is ended, if it was not used since then."""


class StreamPart(msgspec.Struct, frozen=True, kw_only=True):
    """What is new of a stream."""

    number: int
    owner: str
    """The process that runs its requests."""
    leased_until: float
    events: list[tuple[int, bytes]]
    first: int
    """Events before this one are forgotten."""
    waiting: bytes
    """The requests that have no response yet."""
    expires: float | None = None
    """When it is forgotten, if it has ended."""


class StreamView(msgspec.Struct, frozen=True):
    """A stream as a process sees it that does not run it."""

    owner: str
    leased_until: float
    has_ended: bool
    waiting: bytes
    events: list[tuple[int, bytes]]
    """Those after the one that was asked for, in order."""


class SessionStore(abc.ABC):
    """Sessions, questions, streams. The time comes in as an argument."""

    # Sessions

    @abc.abstractmethod
    async def add(self, row: SessionRow, room: Room) -> list[str] | None:
        """Keep a new session: the keys of those that were ended for it; None if there is no room."""

    @abc.abstractmethod
    async def load(self, key: str, *, now: float) -> SessionRow | None:
        """A session that has not expired."""

    @abc.abstractmethod
    async def change(self, key: str, make: Callable[[bytes], bytes | None]) -> bool:
        """Change the data of a session by a function; False if there is no such session.

        The function returns None to leave the data as it is. It may be called more than once.
        """

    @abc.abstractmethod
    async def touch(self, key: str, *, used: float, expires: float) -> None:
        """Remember that a session was used."""

    @abc.abstractmethod
    async def remove(self, key: str) -> bool:
        """Remove a session and all that belongs to it; whether it was there."""

    # Questions to clients

    @abc.abstractmethod
    async def ask(self, key: str, number: int, *, expires: float) -> None:
        """Keep a question, for an answer that may reach another process."""

    @abc.abstractmethod
    async def answer(self, key: str, number: int, data: bytes) -> bool:
        """Keep the answer to a question; False if nobody asks that, or it was answered before."""

    @abc.abstractmethod
    async def take(self, key: str, numbers: Collection[int]) -> dict[int, bytes]:
        """The answers to these questions, as far as there are any."""

    @abc.abstractmethod
    async def withdraw(self, key: str, number: int) -> None:
        """Forget a question and its answer."""

    # Streams

    @abc.abstractmethod
    async def append(self, key: str, part: StreamPart) -> bool:
        """Add to a stream of a session, or begin it; False if it has ended, or its session."""

    @abc.abstractmethod
    async def read(self, key: str, number: int, *, after: int) -> StreamView | None:
        """A stream, with its events after one."""

    @abc.abstractmethod
    async def give_up(
        self, key: str, number: int, seen: StreamView, events: list[tuple[int, bytes]], *, expires: float
    ) -> bool:
        """End a stream whose owner is gone, with these events; False if it has changed since it was
        `seen`."""

    @abc.abstractmethod
    async def drop(self, key: str, number: int) -> None:
        """Forget a stream and its events."""

    @abc.abstractmethod
    async def extend(self, owner: str, *, until: float) -> None:
        """Extend the leases of all streams of a process that have not ended."""

    @abc.abstractmethod
    async def purge(self, *, now: float) -> None:
        """Forget what has expired, and streams that were abandoned."""
