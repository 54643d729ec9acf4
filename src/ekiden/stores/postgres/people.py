"""Questions to people in Postgres."""

from typing import Any, Final

from ekiden.people.store import PeopleRow, PeopleStore
from ekiden.stores.postgres.database import Connection, PostgresDatabase

__all__ = ["PostgresPeople"]

_COLUMNS: Final = "id, call, audience, due, expires, data, version"
_PURGE_AT_ONCE: Final = 1000
_PURGE: Final = """
    DELETE FROM ekiden_people WHERE id IN (
        SELECT id FROM ekiden_people WHERE expires <= %s LIMIT %s FOR UPDATE SKIP LOCKED
    )
"""


class PostgresPeople(PeopleStore):
    """Implements the port on a database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def add(self, row: PeopleRow) -> PeopleRow:
        """Keep a new row."""
        values = (row.id, row.call, row.audience, row.due, row.expires, row.data, row.version)
        async with self._database.in_line() as connection:
            while True:
                made = await connection.execute(
                    f"INSERT INTO ekiden_people ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s)"  # noqa: S608
                    " ON CONFLICT (id) DO NOTHING",
                    values,
                )
                if made.rowcount:
                    return row
                if (kept := await _load(connection, row.id)) is not None:
                    return kept  # Else it was forgotten in this moment.

    async def load(self, row_id: str) -> PeopleRow | None:
        """A row."""
        async with self._database.in_line() as connection:
            return await _load(connection, row_id)

    async def of_call(self, call: str) -> list[PeopleRow]:
        """The rows of a call."""
        async with self._database.in_line() as connection:
            found = await connection.execute(
                f'SELECT {_COLUMNS} FROM ekiden_people WHERE call = %s ORDER BY id COLLATE "C"',  # noqa: S608
                (call,),
            )
            return _rows(await found.fetchall())

    async def replace(self, row: PeopleRow) -> bool:
        """Change a row that still has this version."""
        async with self._database.in_line() as connection:
            changed = await connection.execute(
                "UPDATE ekiden_people SET due = %s, expires = %s, data = %s, version = version + 1"
                " WHERE id = %s AND version = %s",
                (row.due, row.expires, row.data, row.id, row.version),
            )
        if changed.rowcount == 1:
            row.version += 1
        return changed.rowcount == 1

    async def remove(self, row_id: str, version: int) -> bool:
        """Forget a row that still has this version."""
        async with self._database.in_line() as connection:
            gone = await connection.execute(
                "DELETE FROM ekiden_people WHERE id = %s AND version = %s", (row_id, version)
            )
            return gone.rowcount == 1

    async def due(self, audience: str, *, now: float, limit: int) -> list[PeopleRow]:
        """Rows that are due."""
        async with self._database.in_line() as connection:
            found = await connection.execute(
                f"SELECT {_COLUMNS} FROM ekiden_people WHERE audience = %s AND due <= %s"  # noqa: S608
                ' ORDER BY due, id COLLATE "C" LIMIT %s',
                (audience, now, limit),
            )
            return _rows(await found.fetchall())

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        async with self._database.in_line() as connection:
            await connection.execute(_PURGE, (now, _PURGE_AT_ONCE))


async def _load(connection: Connection, row_id: str) -> PeopleRow | None:
    found = await connection.execute(
        f"SELECT {_COLUMNS} FROM ekiden_people WHERE id = %s",  # noqa: S608
        (row_id,),
    )
    rows = _rows(await found.fetchall())
    return rows[0] if rows else None


def _rows(found: list[Any]) -> list[PeopleRow]:
    return [
        PeopleRow(
            id=i, call=call, audience=audience, due=due, expires=expires, data=bytes(data), version=version
        )
        for i, call, audience, due, expires, data, version in found
    ]
