"""One Postgres database: its schema, its connections, and what it means that it is away.

Connections come from a pool that opens new ones when the server comes back. Whatever goes wrong with
a connection is `StoreUnavailable`: the transaction did not happen, or it is made again with the same
effect. The schema is made by `ekiden store migrate`, never by the way.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Final, LiteralString, TypeAlias

import psycopg
from procrastinate.schema import SchemaManager
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from ekiden.errors import StoreUnavailable, UsageError

__all__ = ["Connection", "PostgresDatabase"]


class _Used(psycopg.AsyncConnection[Any]):
    """A connection that knows when it was last good for something."""

    used_at = 0.0


class _Pool(AsyncConnectionPool[_Used]):
    """A pool that gets every connection back, also from a task that is cancelled at this moment.

    To hand a connection to whoever waits for one takes a few passes of the loop. A cancellation in the
    middle would lose both: the connection to the pool, and its place in the queue to the one that waits.
    """

    async def putconn(self, conn: _Used) -> None:
        """Take a connection back, whatever becomes of the caller."""
        await asyncio.shield(super().putconn(conn))


Connection: TypeAlias = psycopg.AsyncConnection[Any]

_FRESH_SECONDS: Final = 1.0


async def _configure(connection: _Used) -> None:
    """A single statement is a transaction of its own, unless one was begun."""
    await connection.set_autocommit(True)


async def _check(connection: _Used) -> None:
    """Before it is given out: a connection that was good a moment ago is not asked again."""
    if time.monotonic() - connection.used_at > _FRESH_SECONDS:
        await AsyncConnectionPool.check_connection(connection)


_MIGRATIONS: Final[tuple[LiteralString, ...]] = (
    """
    CREATE TABLE ekiden_rounds (
        id text PRIMARY KEY,
        answers text NOT NULL,
        fence bigint NOT NULL,
        leased_until double precision NOT NULL,
        expires double precision NOT NULL,
        outcome bytea
    );
    CREATE TABLE ekiden_round_steps (
        round_id text NOT NULL REFERENCES ekiden_rounds ON DELETE CASCADE,
        key text NOT NULL,
        entry bytea NOT NULL,
        PRIMARY KEY (round_id, key)
    );
    CREATE TABLE ekiden_journals (
        id text PRIMARY KEY,
        data bytea NOT NULL,
        expires double precision NOT NULL
    );
    CREATE INDEX ekiden_rounds_expires ON ekiden_rounds (expires);
    CREATE INDEX ekiden_journals_expires ON ekiden_journals (expires);
    CREATE TABLE ekiden_tasks (
        id text PRIMARY KEY,
        flow text NOT NULL UNIQUE,
        audience text NOT NULL,
        state text NOT NULL,
        fence bigint NOT NULL,
        attempts integer NOT NULL,
        due double precision,
        expires double precision,
        created double precision NOT NULL,
        record bytea NOT NULL
    );
    CREATE INDEX ekiden_tasks_due ON ekiden_tasks (audience, due) WHERE due IS NOT NULL;
    CREATE INDEX ekiden_tasks_expires ON ekiden_tasks (expires) WHERE expires IS NOT NULL;
    CREATE INDEX ekiden_tasks_created ON ekiden_tasks (created);
    CREATE TABLE ekiden_task_entries (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        task_id text NOT NULL REFERENCES ekiden_tasks ON DELETE CASCADE,
        key text NOT NULL,
        entry bytea NOT NULL,
        UNIQUE (task_id, key)
    );
    """,
)
"""The statements that lead from each schema version to the next."""

_LOCK: Final = 0x656B6964656E
"""The advisory lock of who migrates."""

_AWAY: Final = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, PoolClosed, OSError)


class PostgresDatabase:
    """The database behind a URL."""

    def __init__(self, url: str, *, most_connections: int = 10, wait_seconds: float = 5.0) -> None:
        self.url = url
        self._most = most_connections
        self._wait_seconds = wait_seconds
        self._pool: _Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._current = False

    async def pool(self) -> _Pool:
        """The connections, opened when first needed."""
        loop = asyncio.get_running_loop()
        if self._pool is not None and self._loop is loop and self._current:
            return self._pool
        async with self._opening:
            if self._pool is None or self._loop is not loop:
                # Connections belong to a loop; those of one that has ended are beyond closing.
                self._loop, self._current = loop, False
                self._pool = _Pool(
                    self.url,
                    connection_class=_Used,
                    configure=_configure,
                    min_size=1,
                    max_size=self._most,
                    timeout=self._wait_seconds,
                    reconnect_timeout=1.0,
                    open=False,
                    check=_check,
                )
                await self._pool.open()
            if not self._current:
                await self._check_schema(self._pool)
                self._current = True
        return self._pool

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[Connection, None]:
        """A connection for single statements, each a transaction of its own."""
        try:
            pool = await self.pool()
            async with pool.connection() as connection:
                yield connection
                connection.used_at = time.monotonic()
        except _AWAY as error:
            raise StoreUnavailable(f"the database cannot be reached: {error}") from error

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection, None]:
        """A connection in a transaction: committed when the block ends well, else undone."""
        try:
            pool = await self.pool()
            async with pool.connection() as connection:
                async with connection.transaction():
                    yield connection
                connection.used_at = time.monotonic()
        except _AWAY as error:
            raise StoreUnavailable(f"the database cannot be reached: {error}") from error

    # The schema

    async def _check_schema(self, pool: _Pool) -> None:
        try:
            async with pool.connection() as connection:
                version = await _version(connection)
        except _AWAY as error:
            raise StoreUnavailable(f"the database cannot be reached: {error}") from error
        if version < len(_MIGRATIONS):
            raise UsageError(
                "the tables of the store are missing or old: run `ekiden store migrate postgresql://...`"
            )
        if version > len(_MIGRATIONS):
            raise UsageError(f"the store was written by a newer ekiden (schema {version})")

    async def migrate(self) -> None:
        """Make the tables, ours and the queue's, or bring them up to date."""
        try:
            connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        except psycopg.Error as error:
            raise UsageError(f"the database cannot be reached: {error}") from error
        async with connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS ekiden_schema (version integer NOT NULL, queue text NOT NULL)"
            )
            version = await _version(connection)
            if version > len(_MIGRATIONS):
                raise UsageError(f"the store was written by a newer ekiden (schema {version})")
            for script in _MIGRATIONS[version:]:
                await connection.execute(script)
            await _migrate_queue(connection)
            await connection.execute("DELETE FROM ekiden_schema")
            await connection.execute(
                "INSERT INTO ekiden_schema VALUES (%s, %s)", (len(_MIGRATIONS), _queue_version())
            )

    async def close(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None and self._loop is asyncio.get_running_loop():
            with contextlib.suppress(psycopg.Error):
                await pool.close()


async def _version(connection: Connection) -> int:
    row = await (await connection.execute("SELECT to_regclass('ekiden_schema')")).fetchone()
    if row is None or row[0] is None:
        return 0
    row = await (await connection.execute("SELECT version FROM ekiden_schema")).fetchone()
    return 0 if row is None else int(row[0])


def _queue_version() -> str:
    return metadata.version("procrastinate")


async def _migrate_queue(connection: Connection) -> None:
    """The tables of procrastinate: all of them, or what its newer version adds."""
    row = await (await connection.execute("SELECT to_regclass('procrastinate_jobs')")).fetchone()
    if row is None or row[0] is None:
        await connection.execute(SchemaManager.get_schema())
        return
    row = await (await connection.execute("SELECT queue FROM ekiden_schema")).fetchone()
    known = _numbers(row[0] if row is not None else _queue_version())
    for script in _queue_migrations(known):
        await connection.execute(script)


def _queue_migrations(known: tuple[int, ...]) -> list[bytes]:
    scripts = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
    return [path.read_bytes() for path in scripts if _numbers(path.name.partition("_")[0]) > known]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
