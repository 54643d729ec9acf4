"""Sessions of 2025 in one SQLite file: rows, the questions to their clients, the events of their streams."""

import sqlite3
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

from ekiden.sessions.store import (
    ABANDONED_SECONDS,
    MOST_ENDED,
    Room,
    SessionRow,
    SessionStore,
    StreamPart,
    StreamView,
)
from ekiden.stores.sqlite.file import SQLiteFile
from ekiden.stores.sqlite.portions import remove_in_portions

__all__ = ["SQLiteSessions"]

T = TypeVar("T")

_ENDED: Final = """
    SELECT number FROM streams WHERE session = ? AND expires IS NOT NULL
    ORDER BY expires DESC, number LIMIT -1 OFFSET ?
"""
_OVER: Final = """
    SELECT session, number FROM streams WHERE expires <= ?
    UNION ALL SELECT session, number FROM streams WHERE expires IS NULL AND leased_until <= ?
"""


class SQLiteSessions(SessionStore):
    """Implements the port on a file."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file

    async def _run(self, work: Callable[..., T], *arguments: Any, size: int = 0) -> T:
        return await self._file.write(lambda connection: work(connection, *arguments), size=size)

    async def add(self, row: SessionRow, room: Room) -> list[str] | None:
        """Keep a new session."""
        return await self._run(_add, row, room, size=len(row.data))

    async def load(self, key: str, *, now: float) -> SessionRow | None:
        """A session that has not expired."""
        return await self._file.read(lambda reader: _load(reader, key, now))

    async def change(self, key: str, make: Callable[[bytes], bytes | None]) -> bool:
        """Change the data of a session."""
        return await self._run(_change, key, make)

    async def touch(self, key: str, *, used: float, expires: float) -> None:
        """Remember that a session was used."""
        await self._run(
            _execute, "UPDATE sessions SET used = ?, expires = ? WHERE key = ?", used, expires, key
        )

    async def remove(self, key: str) -> bool:
        """Remove a session and all that belongs to it."""
        return await self._run(_remove, key)

    async def ask(self, key: str, number: int, *, expires: float) -> None:
        """Keep a question."""
        query = "INSERT OR REPLACE INTO questions (session, number, expires) VALUES (?, ?, ?)"
        await self._run(_execute, query, key, number, expires)

    async def answer(self, key: str, number: int, data: bytes) -> bool:
        """Keep the answer to a question."""
        query = "UPDATE questions SET answer = ? WHERE session = ? AND number = ? AND answer IS NULL"
        return await self._run(_execute, query, data, key, number, size=len(data)) == 1

    async def take(self, key: str, numbers: Collection[int]) -> dict[int, bytes]:
        """The answers to these questions."""
        query = "SELECT number, answer FROM questions WHERE session = ? AND answer IS NOT NULL"
        rows = await self._file.read(lambda reader: reader.execute(query, (key,)).fetchall())
        return {number: answer for number, answer in rows if number in numbers}

    async def withdraw(self, key: str, number: int) -> None:
        """Forget a question."""
        await self._run(_execute, "DELETE FROM questions WHERE session = ? AND number = ?", key, number)

    async def append(self, key: str, part: StreamPart) -> bool:
        """Add to a stream."""
        return await self._run(_append, key, part, size=sum(len(event) for _, event in part.events))

    async def read(self, key: str, number: int, *, after: int) -> StreamView | None:
        """A stream, with its events after one."""
        return await self._file.read(lambda reader: _read(reader, key, number, after))

    async def give_up(
        self, key: str, number: int, seen: StreamView, events: list[tuple[int, bytes]], *, expires: float
    ) -> bool:
        """End a stream whose owner is gone."""
        return await self._run(_give_up, key, number, seen, events, expires)

    async def drop(self, key: str, number: int) -> None:
        """Forget a stream and its events."""
        await self._run(_forget_stream, key, number)

    async def extend(self, owner: str, *, until: float) -> None:
        """Extend the leases of all streams of a process."""
        query = "UPDATE streams SET leased_until = ? WHERE owner = ? AND expires IS NULL"
        await self._run(_execute, query, until, owner)

    async def purge(self, *, now: float) -> None:
        """Forget what has expired, and streams that were abandoned, some at a time."""
        sessions = "SELECT key FROM sessions WHERE expires <= ?"
        await remove_in_portions(self._file, sessions, (now,), _remove)
        await remove_in_portions(self._file, _OVER, (now, now - ABANDONED_SECONDS), _forget_stream)
        questions = "SELECT session, number FROM questions WHERE expires <= ?"
        await remove_in_portions(self._file, questions, (now,), _forget_question)


def _execute(connection: sqlite3.Connection, query: str, *values: object) -> int:
    return connection.execute(query, values).rowcount


def _add(connection: sqlite3.Connection, row: SessionRow, room: Room) -> list[str] | None:
    ended: list[str] = []
    whose: list[tuple[str, tuple[str, ...], int]] = [("audience = ?", (row.audience,), room.sessions)]
    if row.principal:
        mine = (row.audience, row.principal)
        whose.insert(0, ("audience = ? AND principal = ?", mine, room.per_principal))
    for where, values, most in whose:
        # `where` is one of the two literals above, never input.
        count = connection.execute(f"SELECT count(*) FROM sessions WHERE {where}", values).fetchone()[0]  # noqa: S608
        if count < most:
            continue
        oldest = connection.execute(
            f"SELECT key, used FROM sessions WHERE {where} ORDER BY used LIMIT 1",  # noqa: S608
            values,
        ).fetchone()
        if oldest is None or oldest[1] > room.unused_since:
            return None
        _remove(connection, oldest[0])
        ended.append(oldest[0])
    connection.execute(
        "INSERT INTO sessions (key, audience, principal, used, expires, data) VALUES (?, ?, ?, ?, ?, ?)",
        (row.key, row.audience, row.principal, row.used, row.expires, row.data),
    )
    return ended


def _load(connection: sqlite3.Connection, key: str, now: float) -> SessionRow | None:
    row = connection.execute(
        "SELECT audience, principal, used, expires, data FROM sessions WHERE key = ? AND expires > ?",
        (key, now),
    ).fetchone()
    if row is None:
        return None
    audience, principal, used, expires, data = row
    return SessionRow(key=key, audience=audience, principal=principal, used=used, expires=expires, data=data)


def _change(connection: sqlite3.Connection, key: str, make: Callable[[bytes], bytes | None]) -> bool:
    row = connection.execute("SELECT data FROM sessions WHERE key = ?", (key,)).fetchone()
    if row is None:
        return False
    if (data := make(row[0])) is not None:
        connection.execute("UPDATE sessions SET data = ? WHERE key = ?", (data, key))
    return True


def _remove(connection: sqlite3.Connection, key: str) -> bool:
    for table in ("events", "streams", "questions"):
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (key,))  # noqa: S608
    return connection.execute("DELETE FROM sessions WHERE key = ?", (key,)).rowcount == 1


def _append(connection: sqlite3.Connection, key: str, part: StreamPart) -> bool:
    if connection.execute("SELECT 1 FROM sessions WHERE key = ?", (key,)).fetchone() is None:
        return False
    changed = connection.execute(
        "INSERT INTO streams (session, number, owner, leased_until, waiting, expires)"
        " VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (session, number) DO UPDATE SET leased_until = excluded.leased_until,"
        " waiting = excluded.waiting, expires = excluded.expires"
        " WHERE owner = excluded.owner AND expires IS NULL",
        (key, part.number, part.owner, part.leased_until, part.waiting, part.expires),
    )
    if changed.rowcount != 1:
        return False
    _keep_events(connection, key, part.number, part.events)
    connection.execute(
        "DELETE FROM events WHERE session = ? AND stream = ? AND number < ?", (key, part.number, part.first)
    )
    if part.expires is not None:
        for (number,) in connection.execute(_ENDED, (key, MOST_ENDED)).fetchall():
            _forget_stream(connection, key, number)
    return True


def _keep_events(
    connection: sqlite3.Connection, key: str, stream: int, events: list[tuple[int, bytes]]
) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO events (session, stream, number, data) VALUES (?, ?, ?, ?)",
        [(key, stream, number, data) for number, data in events],
    )


def _forget_stream(connection: sqlite3.Connection, key: str, number: int) -> None:
    connection.execute("DELETE FROM events WHERE session = ? AND stream = ?", (key, number))
    connection.execute("DELETE FROM streams WHERE session = ? AND number = ?", (key, number))


def _read(connection: sqlite3.Connection, key: str, number: int, after: int) -> StreamView | None:
    row = connection.execute(
        "SELECT owner, leased_until, expires, waiting FROM streams WHERE session = ? AND number = ?",
        (key, number),
    ).fetchone()
    if row is None:
        return None
    # Read after the row: an event that comes between is there then, and the end is not.
    events = connection.execute(
        "SELECT number, data FROM events WHERE session = ? AND stream = ? AND number > ? ORDER BY number",
        (key, number, after),
    ).fetchall()
    owner, leased_until, expires, waiting = row
    return StreamView(owner, leased_until, expires is not None, waiting, events)


def _give_up(
    connection: sqlite3.Connection,
    key: str,
    number: int,
    seen: StreamView,
    events: list[tuple[int, bytes]],
    expires: float,
) -> bool:
    changed = connection.execute(
        "UPDATE streams SET expires = ?, waiting = x'' WHERE session = ? AND number = ?"
        " AND owner = ? AND leased_until = ? AND (expires IS NOT NULL) = ? AND waiting = ?",
        (expires, key, number, seen.owner, seen.leased_until, seen.has_ended, seen.waiting),
    )
    if changed.rowcount != 1:
        return False
    _keep_events(connection, key, number, events)
    return True


def _forget_question(connection: sqlite3.Connection, key: str, number: int) -> None:
    connection.execute("DELETE FROM questions WHERE session = ? AND number = ?", (key, number))
