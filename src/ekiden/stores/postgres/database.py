"""One Postgres database, and which of its connections is used for what.

Most connections come from a pool. The owners of rounds, the statements of tasks and the renewal of leases
have a few of their own, so that they never wait behind other callers. Errors are `StoreUnavailable`: the
transaction did not happen, or can be repeated with the same effect. The tables are made by
`ekiden store migrate` only.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool

from ekiden.errors import UsageError
from ekiden.stores.postgres import schema
from ekiden.stores.postgres.lane import FRESH_SECONDS, Lane
from ekiden.stores.postgres.schema import Connection
from ekiden.stores.postgres.session import away, cut_after, prepare_session

__all__ = ["Connection", "PostgresDatabase"]

T = TypeVar("T")


class _Used(psycopg.AsyncConnection[Any]):
    """A connection that knows when it was last used successfully."""

    used_at = 0.0


class _Pool(AsyncConnectionPool[_Used]):
    """A pool that gets every connection back, also from a task that is cancelled at this moment.

    To hand a connection over takes a few passes of the loop. A cancellation in the middle would lose the
    connection to the pool, and the next caller would wait for ever.
    """

    async def putconn(self, conn: _Used) -> None:
        """Take a connection back, whatever becomes of the caller."""
        await asyncio.shield(super().putconn(conn))


async def _check(connection: _Used, seconds: float) -> None:
    """Test a connection before it is given out, unless it was used a moment ago."""
    if time.monotonic() - connection.used_at > FRESH_SECONDS:
        with cut_after(connection, seconds):
            await AsyncConnectionPool.check_connection(connection)


_OWNERS: Final = 2
"""Connections that only the owners of rounds use."""
_TASKS: Final = 4
"""Connections for the statements of tasks, each for many tasks at once."""


class PostgresDatabase:
    """The database behind a URL."""

    def __init__(self, url: str, *, most_connections: int = 10, wait_seconds: float = 5.0) -> None:
        self.url = url
        self._most = most_connections
        self.wait_seconds = wait_seconds
        self._pool: _Pool | None = None
        self._lanes: dict[str, Lane] = {}
        self._in_line = asyncio.Semaphore()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._current = False
        self._asked: set[asyncio.Task[Any]] = set()

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
                self._lanes = {
                    name: Lane(self.url, most=most, wait_seconds=self.wait_seconds)
                    for name, most in (("owners", _OWNERS), ("tasks", _TASKS), ("renewals", 1))
                }
                self._in_line = asyncio.Semaphore(max(1, self._most - 2))
            if not self._current:
                with away():
                    async with self._pool.connection() as connection:
                        await schema.check(connection)
                self._current = True
        return self._pool

    async def _open(self) -> _Pool:
        pool = _Pool(
            self.url,
            connection_class=_Used,
            configure=partial(prepare_session, seconds=self.wait_seconds),
            min_size=1,
            max_size=self._most,
            timeout=self.wait_seconds,
            reconnect_timeout=1.0,
            open=False,
            check=partial(_check, seconds=self.wait_seconds),
        )
        await pool.open()
        return pool

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[Connection, None]:
        """A connection for single statements, each a transaction of its own."""
        with away():
            pool = await self.pool()
            async with pool.connection() as connection:
                with cut_after(connection, self.wait_seconds):
                    yield connection
                connection.used_at = time.monotonic()

    @asynccontextmanager
    async def in_line(self) -> AsyncGenerator[Connection, None]:
        """The same where there may be thousands of callers: they wait for one another, however long.

        They use fewer connections than the pool has, so a timeout of the pool means a slow database.
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
        with away():
            async with (await self._lane("owners")).transaction() as connection:
                yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[Connection, None]:
        """A connection for one statement that changes tasks, or looks them up for that."""
        with away():
            async with (await self._lane("tasks")).connection() as connection:
                yield connection

    @asynccontextmanager
    async def renewing(self) -> AsyncGenerator[Connection, None]:
        """A connection that only the renewal of leases uses."""
        with away():
            async with (await self._lane("renewals")).connection() as connection:
                yield connection

    async def _lane(self, name: str) -> Lane:
        if not self._lanes or self._loop is not asyncio.get_running_loop():
            await self.pool()
        return self._lanes[name]

    async def to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Await what is asked of the database; if the caller is cancelled, the statement goes on.

        To cancel a statement would cost the database more than to let it end, and may take as long.
        """
        task = asyncio.create_task(work)
        self._asked.add(task)
        task.add_done_callback(self._answered)
        return await asyncio.shield(task)

    def _answered(self, task: asyncio.Task[Any]) -> None:
        self._asked.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieved, so that asyncio does not warn if the caller was cancelled.

    async def migrate(self) -> None:
        """Make the tables, or bring them up to date."""
        try:
            connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        except psycopg.Error as error:
            raise UsageError(f"the database cannot be reached: {error}") from error
        async with connection, connection.transaction():
            await schema.migrate(connection)

    async def close(self) -> None:
        """Close the connections, when what is being asked has been answered."""
        if self._asked and self._loop is asyncio.get_running_loop():
            await asyncio.wait(set(self._asked), timeout=2 * self.wait_seconds)
        pool, self._pool = self._pool, None
        lanes, self._lanes = self._lanes, {}
        if self._loop is asyncio.get_running_loop():
            for lane in lanes.values():
                await lane.close()
            if pool is not None:
                with contextlib.suppress(psycopg.Error):
                    await pool.close()
