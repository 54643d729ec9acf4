"""Questions to people in one SQLite file."""

import sqlite3
from typing import Any, Final

from ekiden.people.store import PeopleRow, PeopleStore
from ekiden.stores.sqlite.file import SQLiteFile
from ekiden.stores.sqlite.portions import remove_in_portions

__all__ = ["SQLitePeople"]

_COLUMNS: Final = "id, call, audience, due, expires, data, version"


class SQLitePeople(PeopleStore):
    """Implements the port on a file."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file

    async def add(self, row: PeopleRow) -> PeopleRow:
        """Keep a new row."""
        return await self._file.write(lambda connection: _add(connection, row), size=len(row.data))

    async def load(self, row_id: str) -> PeopleRow | None:
        """A row."""
        return await self._file.read(lambda reader: _load(reader, row_id))

    async def of_call(self, call: str) -> list[PeopleRow]:
        """The rows of a call."""
        query = f"SELECT {_COLUMNS} FROM people WHERE call = ? ORDER BY id"  # noqa: S608
        return await self._file.read(lambda reader: _rows(reader.execute(query, (call,)).fetchall()))

    async def replace(self, row: PeopleRow) -> bool:
        """Change a row that still has this version."""
        query = (
            "UPDATE people SET due = ?, expires = ?, data = ?, version = version + 1"
            " WHERE id = ? AND version = ?"
        )
        values = (row.due, row.expires, row.data, row.id, row.version)
        changed = await self._file.write(lambda c: c.execute(query, values).rowcount, size=len(row.data))
        if changed == 1:
            row.version += 1
        return changed == 1

    async def remove(self, row_id: str, version: int) -> bool:
        """Forget a row that still has this version."""
        query = "DELETE FROM people WHERE id = ? AND version = ?"
        return await self._file.write(lambda c: c.execute(query, (row_id, version)).rowcount) == 1

    async def due(self, audience: str, *, now: float, limit: int) -> list[PeopleRow]:
        """Rows that are due."""
        query = f"SELECT {_COLUMNS} FROM people WHERE audience = ? AND due <= ? ORDER BY due, id LIMIT ?"  # noqa: S608
        values = (audience, now, limit)
        return await self._file.read(lambda reader: _rows(reader.execute(query, values).fetchall()))

    async def purge(self, *, now: float) -> None:
        """Forget what has expired, some at a time."""
        await remove_in_portions(self._file, "SELECT id FROM people WHERE expires <= ?", (now,), _forget)


def _forget(connection: sqlite3.Connection, row_id: str) -> None:
    connection.execute("DELETE FROM people WHERE id = ?", (row_id,))


def _add(connection: sqlite3.Connection, row: PeopleRow) -> PeopleRow:
    values = (row.id, row.call, row.audience, row.due, row.expires, row.data, row.version)
    connection.execute(
        f"INSERT INTO people ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",  # noqa: S608
        values,
    )
    kept = _load(connection, row.id)
    assert kept is not None
    return kept


def _load(connection: sqlite3.Connection, row_id: str) -> PeopleRow | None:
    query = f"SELECT {_COLUMNS} FROM people WHERE id = ?"  # noqa: S608
    found = _rows(connection.execute(query, (row_id,)).fetchall())
    return found[0] if found else None


def _rows(found: list[Any]) -> list[PeopleRow]:
    return [
        PeopleRow(id=i, call=call, audience=audience, due=due, expires=expires, data=data, version=version)
        for i, call, audience, due, expires, data, version in found
    ]
