"""Sessions of 2025 in Postgres: rows, the questions to their clients, and the events of their streams."""

from collections.abc import Callable, Collection
from typing import Final, LiteralString

from psycopg import sql

from ekiden.sessions.store import (
    ABANDONED_SECONDS,
    MOST_ENDED,
    Room,
    SessionRow,
    SessionStore,
    StreamPart,
    StreamView,
)
from ekiden.stores.keys_of_entries import key_from_bytes, key_to_bytes
from ekiden.stores.postgres.database import Connection, PostgresDatabase

__all__ = ["PostgresSessions"]

_PURGE_AT_ONCE: Final = 1000
_PURGES: Final[tuple[LiteralString, ...]] = (
    """
    DELETE FROM ekiden_sessions WHERE key IN (
        SELECT key FROM ekiden_sessions WHERE expires <= %(now)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    """,
    """
    DELETE FROM ekiden_streams WHERE (session, number) IN (
        SELECT session, number FROM ekiden_streams
        WHERE expires <= %(now)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    """,
    """
    DELETE FROM ekiden_streams WHERE (session, number) IN (
        SELECT session, number FROM ekiden_streams
        WHERE expires IS NULL AND leased_until <= %(abandoned)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    """,
    """
    DELETE FROM ekiden_questions WHERE (session, number) IN (
        SELECT session, number FROM ekiden_questions
        WHERE expires <= %(now)s LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    """,
)
_APPEND: Final = """
    INSERT INTO ekiden_streams AS kept (session, number, owner, leased_until, waiting, expires)
    SELECT key, %s, %s, %s, %s, %s FROM ekiden_sessions WHERE key = %s FOR KEY SHARE
    ON CONFLICT (session, number) DO UPDATE SET
        leased_until = EXCLUDED.leased_until, waiting = EXCLUDED.waiting, expires = EXCLUDED.expires
        WHERE kept.owner = EXCLUDED.owner AND kept.expires IS NULL
"""
_FORGET_ENDED: Final = """
    DELETE FROM ekiden_streams WHERE session = %s AND number IN (
        SELECT number FROM ekiden_streams WHERE session = %s AND expires IS NOT NULL
        ORDER BY expires DESC, number OFFSET %s
    )
"""


class PostgresSessions(SessionStore):
    """Implements the port on a database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def _execute(self, query: LiteralString, *values: object) -> int:
        async with self._database.in_line() as connection:
            return (await connection.execute(query, values)).rowcount

    async def add(self, row: SessionRow, room: Room) -> list[str] | None:
        """Keep a new session."""
        principal = key_to_bytes(row.principal)
        async with self._database.transaction() as connection:
            ended: list[str] = []
            if row.principal and not await _make_room(
                connection, ended, room.per_principal, room.unused_since, row.audience, principal
            ):
                return None
            if not await _make_room(connection, ended, room.sessions, room.unused_since, row.audience):
                return None
            await connection.execute(
                "INSERT INTO ekiden_sessions (key, audience, principal, used, expires, data)"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                (row.key, row.audience, principal, row.used, row.expires, row.data),
            )
            return ended

    async def load(self, key: str, *, now: float) -> SessionRow | None:
        """A session that has not expired."""
        async with self._database.in_line() as connection:
            found = await connection.execute(
                "SELECT audience, principal, used, expires, data FROM ekiden_sessions"
                " WHERE key = %s AND expires > %s",
                (key, now),
            )
            row = await found.fetchone()
        if row is None:
            return None
        audience, principal, used, expires, data = row
        return SessionRow(
            key=key,
            audience=audience,
            principal=key_from_bytes(principal),
            used=used,
            expires=expires,
            data=bytes(data),
        )

    async def change(self, key: str, make: Callable[[bytes], bytes | None]) -> bool:
        """Change the data of a session."""
        async with self._database.transaction() as connection:
            found = await connection.execute(
                "SELECT data FROM ekiden_sessions WHERE key = %s FOR NO KEY UPDATE", (key,)
            )
            row = await found.fetchone()
            if row is None:
                return False
            if (data := make(bytes(row[0]))) is not None:
                await connection.execute("UPDATE ekiden_sessions SET data = %s WHERE key = %s", (data, key))
            return True

    async def touch(self, key: str, *, used: float, expires: float) -> None:
        """Remember that a session was used."""
        await self._execute(
            "UPDATE ekiden_sessions SET used = %s, expires = %s WHERE key = %s", used, expires, key
        )

    async def remove(self, key: str) -> bool:
        """Remove a session; what belongs to it goes along."""
        return await self._execute("DELETE FROM ekiden_sessions WHERE key = %s", key) == 1

    async def ask(self, key: str, number: int, *, expires: float) -> None:
        """Keep a question."""
        await self._execute(
            "INSERT INTO ekiden_questions (session, number, expires)"
            " SELECT key, %s, %s FROM ekiden_sessions WHERE key = %s FOR KEY SHARE"
            " ON CONFLICT (session, number) DO UPDATE SET expires = EXCLUDED.expires, answer = NULL",
            number,
            expires,
            key,
        )

    async def answer(self, key: str, number: int, data: bytes) -> bool:
        """Keep the answer to a question."""
        query: LiteralString = (
            "UPDATE ekiden_questions SET answer = %s WHERE session = %s AND number = %s AND answer IS NULL"
        )
        return await self._execute(query, data, key, number) == 1

    async def take(self, key: str, numbers: Collection[int]) -> dict[int, bytes]:
        """The answers to these questions."""
        async with self._database.in_line() as connection:
            found = await connection.execute(
                "SELECT number, answer FROM ekiden_questions"
                " WHERE session = %s AND number = ANY(%s) AND answer IS NOT NULL",
                (key, list(numbers)),
            )
            return {number: bytes(answer) for number, answer in await found.fetchall()}

    async def withdraw(self, key: str, number: int) -> None:
        """Forget a question."""
        await self._execute("DELETE FROM ekiden_questions WHERE session = %s AND number = %s", key, number)

    async def append(self, key: str, part: StreamPart) -> bool:
        """Add to a stream."""
        async with self._database.transaction() as connection:
            changed = await connection.execute(
                _APPEND, (part.number, part.owner, part.leased_until, part.waiting, part.expires, key)
            )
            if changed.rowcount != 1:
                return False
            await _keep_events(connection, key, part.number, part.events)
            await connection.execute(
                "DELETE FROM ekiden_events WHERE session = %s AND stream = %s AND number < %s",
                (key, part.number, part.first),
            )
            if part.expires is not None:
                await connection.execute(_FORGET_ENDED, (key, key, MOST_ENDED))
            return True

    async def read(self, key: str, number: int, *, after: int) -> StreamView | None:
        """A stream, with its events after one."""
        async with self._database.in_line() as connection:
            found = await connection.execute(
                "SELECT owner, leased_until, expires IS NOT NULL, waiting FROM ekiden_streams"
                " WHERE session = %s AND number = %s",
                (key, number),
            )
            row = await found.fetchone()
            if row is None:
                return None
            # Read after the row: an event that comes between is there then, and the end is not.
            kept = await connection.execute(
                "SELECT number, data FROM ekiden_events"
                " WHERE session = %s AND stream = %s AND number > %s ORDER BY number",
                (key, number, after),
            )
            events = [(place, bytes(data)) for place, data in await kept.fetchall()]
        owner, leased_until, has_ended, waiting = row
        return StreamView(owner, leased_until, has_ended, bytes(waiting), events)

    async def give_up(
        self, key: str, number: int, seen: StreamView, events: list[tuple[int, bytes]], *, expires: float
    ) -> bool:
        """End a stream whose owner is gone."""
        async with self._database.transaction() as connection:
            changed = await connection.execute(
                "UPDATE ekiden_streams SET expires = %s, waiting = '' WHERE session = %s AND number = %s"
                " AND owner = %s AND leased_until = %s AND (expires IS NOT NULL) = %s AND waiting = %s",
                (expires, key, number, seen.owner, seen.leased_until, seen.has_ended, seen.waiting),
            )
            if changed.rowcount != 1:
                return False
            await _keep_events(connection, key, number, events)
            return True

    async def drop(self, key: str, number: int) -> None:
        """Forget a stream; its events go along."""
        await self._execute("DELETE FROM ekiden_streams WHERE session = %s AND number = %s", key, number)

    async def extend(self, owner: str, *, until: float) -> None:
        """Extend the leases of all streams of a process."""
        await self._execute(
            "UPDATE ekiden_streams SET leased_until = %s WHERE owner = %s AND expires IS NULL", until, owner
        )

    async def purge(self, *, now: float) -> None:
        """Forget what has expired, and streams that were abandoned, some at a time."""
        values = {"now": now, "abandoned": now - ABANDONED_SECONDS, "limit": _PURGE_AT_ONCE}
        for query in _PURGES:
            removed = _PURGE_AT_ONCE
            while removed == _PURGE_AT_ONCE:
                async with self._database.in_line() as connection:
                    removed = (await connection.execute(query, values)).rowcount


async def _make_room(
    connection: Connection,
    ended: list[str],
    most: int,
    unused_since: float,
    audience: str,
    principal: bytes | None = None,
) -> bool:
    """Have room for one more session of a server, or of one principal; False if all of them are in use."""
    values = {"audience": audience, "principal": principal}
    whose: LiteralString = "audience = %(audience)s"
    if principal is not None:
        whose = "audience = %(audience)s AND principal = %(principal)s"
    counted = await connection.execute(
        sql.SQL("SELECT count(*) FROM ekiden_sessions WHERE {}").format(sql.SQL(whose)),
        values,
    )
    if (await counted.fetchone() or (0,))[0] < most:
        return True
    removed = await connection.execute(
        sql.SQL(
            "DELETE FROM ekiden_sessions WHERE key = (SELECT key FROM ekiden_sessions WHERE {}"
            " AND used <= %(unused_since)s ORDER BY used LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING key"
        ).format(sql.SQL(whose)),
        {**values, "unused_since": unused_since},
    )
    row = await removed.fetchone()
    if row is None:
        return False
    ended.append(row[0])
    return True


async def _keep_events(
    connection: Connection, key: str, stream: int, events: list[tuple[int, bytes]]
) -> None:
    if events:
        await connection.cursor().executemany(
            "INSERT INTO ekiden_events (session, stream, number, data) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            [(key, stream, number, data) for number, data in events],
        )
