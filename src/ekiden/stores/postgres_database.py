"""One Postgres database: its connections, and what it means that it is away.

Connections come from a pool that opens new ones when the server comes back; those who own a round have a
few of their own. Whatever goes wrong with a connection is `StoreUnavailable`: the transaction did not
happen, or it is made again with the same effect. The schema is made by `ekiden store migrate`, never by
the way.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from ekiden.errors import StoreUnavailable, UsageError
from ekiden.stores import postgres_schema
from ekiden.stores.postgres_lane import FRESH_SECONDS, Lane
from ekiden.stores.postgres_schema import Connection

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


async def _configure(connection: _Used) -> None:
    """A single statement is a transaction of its own, unless one was begun."""
    await connection.set_autocommit(True)


async def _check(connection: _Used) -> None:
    """Before it is given out: a connection that was good a moment ago is not asked again."""
    if time.monotonic() - connection.used_at > FRESH_SECONDS:
        await AsyncConnectionPool.check_connection(connection)


_AWAY: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,  # What was the primary is none any more, and another is elsewhere.
    PoolTimeout,
    PoolClosed,
    OSError,
)

_OWNERS: Final = 2
"""Connections that only the owners of rounds use."""


@contextlib.contextmanager
def _away() -> Generator[None, None, None]:
    """Say of what goes wrong with a connection that the store is not available."""
    try:
        yield
    except psycopg.errors.ProgramLimitExceeded:
        raise  # Too large for the database, now and whenever it is tried again.
    except _AWAY as error:
        raise StoreUnavailable(f"the database cannot be reached: {error}") from error


class PostgresDatabase:
    """The database behind a URL."""

    def __init__(self, url: str, *, most_connections: int = 10, wait_seconds: float = 5.0) -> None:
        self.url = url
        self._most = most_connections
        self._wait_seconds = wait_seconds
        self._pool: _Pool | None = None
        self._owners: Lane | None = None
        self._in_line = asyncio.Semaphore()
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
                self._pool = await self._open()
                self._owners = Lane(self.url, most=_OWNERS, wait_seconds=self._wait_seconds)
                self._in_line = asyncio.Semaphore(max(1, self._most - 2))
            if not self._current:
                with _away():
                    async with self._pool.connection() as connection:
                        await postgres_schema.check(connection)
                self._current = True
        return self._pool

    async def _open(self) -> _Pool:
        pool = _Pool(
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
        await pool.open()
        return pool

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[Connection, None]:
        """A connection for single statements, each a transaction of its own."""
        with _away():
            pool = await self.pool()
            async with pool.connection() as connection:
                yield connection
                connection.used_at = time.monotonic()

    @asynccontextmanager
    async def in_line(self) -> AsyncGenerator[Connection, None]:
        """The same for callers of whom there may be thousands: they wait for one another, however long.

        They use fewer connections than the pool has. So who waits for the pool waits for the database.
        """
        await self.pool()
        async with self._in_line, self.reading() as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection, None]:
        """A connection in a transaction: committed when the block ends well, else undone."""
        async with self.reading() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def owning(self) -> AsyncGenerator[Connection, None]:
        """A transaction for an owner, on a connection that none but owners use."""
        with _away():
            if self._owners is None or self._loop is not asyncio.get_running_loop():
                await self.pool()
            assert self._owners is not None
            async with self._owners.transaction() as connection:
                yield connection

    async def migrate(self) -> None:
        """Make the tables, ours and the queue's, or bring them up to date."""
        try:
            connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        except psycopg.Error as error:
            raise UsageError(f"the database cannot be reached: {error}") from error
        async with connection, connection.transaction():
            await postgres_schema.migrate(connection)

    async def close(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        owners, self._owners = self._owners, None
        if self._loop is asyncio.get_running_loop():
            if owners is not None:
                await owners.close()
            if pool is not None:
                with contextlib.suppress(psycopg.Error):
                    await pool.close()
