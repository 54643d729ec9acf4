"""Questions to people in memory: lost with the process."""

import msgspec

from ekiden.errors import StoreUnavailable
from ekiden.people.store import PeopleRow, PeopleStore

__all__ = ["MemoryPeople"]

_MOST: int = 10_000
"""Rows that are kept at most. Above it, new ones are refused."""


class MemoryPeople(PeopleStore):
    """Implements the port in a dict."""

    def __init__(self) -> None:
        self._rows: dict[str, PeopleRow] = {}

    async def add(self, row: PeopleRow) -> PeopleRow:
        """Keep a new row."""
        if row.id not in self._rows:
            if len(self._rows) >= _MOST:
                raise StoreUnavailable(f"{_MOST} questions wait for people already: memory keeps no more")
            self._rows[row.id] = msgspec.structs.replace(row)
        return msgspec.structs.replace(self._rows[row.id])

    async def load(self, row_id: str) -> PeopleRow | None:
        """A row."""
        row = self._rows.get(row_id)
        return None if row is None else msgspec.structs.replace(row)

    async def of_call(self, call: str) -> list[PeopleRow]:
        """The rows of a call."""
        found = [msgspec.structs.replace(row) for row in self._rows.values() if row.call == call]
        return sorted(found, key=lambda row: row.id)

    async def replace(self, row: PeopleRow) -> bool:
        """Change a row that still has this version."""
        known = self._rows.get(row.id)
        if known is None or known.version != row.version:
            return False
        row.version += 1
        self._rows[row.id] = msgspec.structs.replace(row, call=known.call, audience=known.audience)
        return True

    async def remove(self, row_id: str, version: int) -> bool:
        """Forget a row that still has this version."""
        known = self._rows.get(row_id)
        if known is None or known.version != version:
            return False
        del self._rows[row_id]
        return True

    async def due(self, audience: str, *, now: float, limit: int) -> list[PeopleRow]:
        """Rows that are due."""
        found = [
            (row.due, row.id)
            for row in self._rows.values()
            if row.due is not None and row.due <= now and row.audience == audience
        ]
        return [msgspec.structs.replace(self._rows[row_id]) for _, row_id in sorted(found)[:limit]]

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        self._rows = {row_id: row for row_id, row in self._rows.items() if row.expires > now}
