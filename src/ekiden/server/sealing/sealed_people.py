"""Questions to people whose contents are sealed: messages, schemas, answers, and the state of calls."""

import logging
from typing import Final

import msgspec

from ekiden.errors import StoreRefused
from ekiden.people.store import PeopleRow, PeopleStore
from ekiden.server.sealing.seal import Seal

__all__ = ["SealedPeople"]

_log = logging.getLogger(__name__)

_PEOPLE: Final = "question to a person"
_REST_SECONDS: Final = 60.0
"""How long a question rests that cannot be opened."""


def _place(row: PeopleRow) -> tuple[str, ...]:
    """Where a row opens. With its call and its server, so that no answer counts for another call."""
    return _PEOPLE, row.id, row.call, row.audience


class SealedPeople(PeopleStore):
    """Seals on the way into another store, and opens on the way out."""

    def __init__(self, inner: PeopleStore, seal: Seal) -> None:
        self._inner = inner
        self._seal = seal

    def _sealed(self, row: PeopleRow) -> PeopleRow:
        return msgspec.structs.replace(row, data=self._seal.seal(row.data, *_place(row)))

    def _opened(self, row: PeopleRow) -> PeopleRow:
        return msgspec.structs.replace(row, data=self._seal.open(row.data, *_place(row)))

    async def add(self, row: PeopleRow) -> PeopleRow:
        """Keep a new row."""
        return self._opened(await self._inner.add(self._sealed(row)))

    async def load(self, row_id: str) -> PeopleRow | None:
        """A row."""
        row = await self._inner.load(row_id)
        return None if row is None else self._opened(row)

    async def of_call(self, call: str) -> list[PeopleRow]:
        """The rows of a call."""
        return [self._opened(row) for row in await self._inner.of_call(call)]

    async def replace(self, row: PeopleRow) -> bool:
        """Change a row that still has this version."""
        sealed = self._sealed(row)
        is_changed = await self._inner.replace(sealed)
        row.version = sealed.version
        return is_changed

    async def remove(self, row_id: str, version: int) -> bool:
        """Forget a row that still has this version."""
        return await self._inner.remove(row_id, version)

    async def due(self, audience: str, *, now: float, limit: int) -> list[PeopleRow]:
        """Rows that are due. One that cannot be opened rests, so that it stands before no other."""
        opened: list[PeopleRow] = []
        for row in await self._inner.due(audience, now=now, limit=limit):
            try:
                opened.append(self._opened(row))
            except StoreRefused as problem:
                _log.error("A question to a person cannot be looked after here: %s", problem)
                row.due = now + _REST_SECONDS
                await self._inner.replace(row)
        return opened

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        await self._inner.purge(now=now)
