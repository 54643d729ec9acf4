"""Sessions whose contents are sealed: what clients say about themselves, answers, and events."""

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from ekiden.server.sealing.seal import Seal
from ekiden.sessions.store import Room, SessionRow, SessionStore, StreamPart, StreamView

__all__ = ["SealedSessions"]

_SESSION: Final = "session"
_ANSWER: Final = "answer of a session"
_EVENT: Final = "event of a session"


class SealedSessions(SessionStore):
    """Seals on the way into another store, and opens on the way out."""

    def __init__(self, inner: SessionStore, seal: Seal) -> None:
        self._inner = inner
        self._seal = seal

    async def add(self, row: SessionRow, room: Room) -> list[str] | None:
        """Keep a new session."""
        data = self._seal.seal(row.data, _SESSION, row.key, row.principal)
        return await self._inner.add(msgspec.structs.replace(row, data=data), room)

    async def load(self, key: str, *, now: float) -> SessionRow | None:
        """A session that has not expired."""
        row = await self._inner.load(key, now=now)
        if row is None:
            return None
        data = self._seal.open(row.data, _SESSION, key, row.principal)
        return msgspec.structs.replace(row, data=data)

    async def change(self, key: str, make: Callable[[bytes], bytes | None]) -> bool:
        """Change the data of a session."""
        row = await self._inner.load(key, now=0.0)
        if row is None:
            return False
        principal = row.principal

        def remake(data: bytes) -> bytes | None:
            made = make(self._seal.open(data, _SESSION, key, principal))
            return None if made is None else self._seal.seal(made, _SESSION, key, principal)

        return await self._inner.change(key, remake)

    async def touch(self, key: str, *, used: float, expires: float) -> None:
        """Remember that a session was used."""
        await self._inner.touch(key, used=used, expires=expires)

    async def remove(self, key: str) -> bool:
        """Remove a session and all that belongs to it."""
        return await self._inner.remove(key)

    async def ask(self, key: str, number: int, *, expires: float) -> None:
        """Keep a question."""
        await self._inner.ask(key, number, expires=expires)

    async def answer(self, key: str, number: int, data: bytes) -> bool:
        """Keep the answer to a question."""
        return await self._inner.answer(key, number, self._seal.seal(data, _ANSWER, key, str(number)))

    async def take(self, key: str, numbers: Collection[int]) -> dict[int, bytes]:
        """The answers to these questions."""
        found = await self._inner.take(key, numbers)
        return {number: self._seal.open(data, _ANSWER, key, str(number)) for number, data in found.items()}

    async def withdraw(self, key: str, number: int) -> None:
        """Forget a question."""
        await self._inner.withdraw(key, number)

    async def append(self, key: str, part: StreamPart) -> bool:
        """Add to a stream."""
        events = self._sealed(key, part.number, part.events)
        return await self._inner.append(key, msgspec.structs.replace(part, events=events))

    async def read(self, key: str, number: int, *, after: int) -> StreamView | None:
        """A stream, with its events after one."""
        view = await self._inner.read(key, number, after=after)
        if view is None:
            return None
        place = (_EVENT, key, str(number))
        events = [(event, self._seal.open(data, *place, str(event))) for event, data in view.events]
        return msgspec.structs.replace(view, events=events)

    async def give_up(
        self, key: str, number: int, seen: StreamView, events: list[tuple[int, bytes]], *, expires: float
    ) -> bool:
        """End a stream whose owner is gone."""
        return await self._inner.give_up(
            key, number, seen, self._sealed(key, number, events), expires=expires
        )

    def _sealed(self, key: str, number: int, events: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        place = (_EVENT, key, str(number))
        return [(event, self._seal.seal(data, *place, str(event))) for event, data in events]

    async def drop(self, key: str, number: int) -> None:
        """Forget a stream and its events."""
        await self._inner.drop(key, number)

    async def extend(self, owner: str, *, until: float) -> None:
        """Extend the leases of all streams of a process."""
        await self._inner.extend(owner, until=until)

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        await self._inner.purge(now=now)
