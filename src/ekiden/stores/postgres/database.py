"""One Postgres database, and which of its connections is used for what.

Each purpose has connections of its own (a lane): owners of rounds, statements of tasks and the renewal of
leases never wait behind other callers. Errors are `StoreUnavailable`: the transaction did not happen, or can
be repeated with the same effect. The tables are made by `ekiden store migrate` only.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import psycopg

from ekiden.errors import UsageError
from ekiden.stores.postgres import schema
from ekiden.stores.postgres.lane import Lane
from ekiden.stores.postgres.schema import Connection
from ekiden.stores.postgres.session import away

__all__ = ["Connection", "PostgresDatabase"]

T = TypeVar("T")

_OWNERS: Final = 2
"""Connections that only the owners of rounds use."""
_TASKS: Final = 4
"""Connections for the statements of tasks, each for many tasks at once."""


class PostgresDatabase:
    """The database behind a URL."""

    # There from `_begin_in` on:
    _in_line: asyncio.Semaphore
    _opening: asyncio.Lock
    _current: bool
    """Whether the tables are known to be as this version of ekiden has them."""

    def __init__(self, url: str, *, most_connections: int = 10, wait_seconds: float = 5.0) -> None:
        self.url = url
        self._most = most_connections
        self.wait_seconds = wait_seconds
        self._lanes: dict[str, Lane] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: set[asyncio.Task[Any]] = set()

    async def _lane(self, name: str) -> Lane:
        """The connections for one purpose. Before the first is used, the tables are checked."""
        loop = asyncio.get_running_loop()
        if not self._lanes or self._loop is not loop:
            self._begin_in(loop)
        lanes = self._lanes
        if not self._current:
            async with self._opening:
                if not self._current:
                    async with lanes["callers"].connection(within=self.wait_seconds) as connection:
                        await schema.check(connection)
                    self._current = True
        return lanes[name]

    def _begin_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connections and locks belong to a loop; connections of one that has ended are beyond closing."""
        self._loop, self._current = loop, False
        sizes = {"callers": self._most, "owners": _OWNERS, "tasks": _TASKS, "renewals": 1}
        self._lanes = {
            of: Lane(self.url, most=most, wait_seconds=self.wait_seconds) for of, most in sizes.items()
        }
        self._in_line = asyncio.Semaphore(max(1, self._most - 2))
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[Connection, None]:
        """A connection for single statements, each a transaction of its own."""
        with away():
            callers = await self._lane("callers")
            async with callers.connection(within=self.wait_seconds) as connection:
                yield connection

    @asynccontextmanager
    async def in_line(self) -> AsyncGenerator[Connection, None]:
        """The same where there may be thousands of callers: they wait for one another, however long.

        They use fewer connections than callers have: to have to wait for one means that the database is slow.
        """
        with away():
            await self._lane("callers")
        async with self._in_line, self.reading() as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection, None]:
        """A connection in a transaction: committed when the block ends well, else undone."""
        async with self.reading() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def owning(self) -> AsyncGenerator[Connection, None]:
        """A connection that none but owners use, for single statements, each a transaction of its own."""
        with away():
            async with (await self._lane("owners")).connection() as connection:
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
            connection = await psycopg.AsyncConnection.connect(self.url)
        except psycopg.Error as error:
            raise UsageError(f"the database cannot be reached: {error}") from error
        async with connection, connection.transaction():
            await schema.migrate(connection)

    async def close(self) -> None:
        """Close the connections, when what is being asked has been answered."""
        if self._asked and self._loop is asyncio.get_running_loop():
            await asyncio.wait(set(self._asked), timeout=2 * self.wait_seconds)
        lanes, self._lanes = self._lanes, {}
        if self._loop is asyncio.get_running_loop():
            for lane in lanes.values():
                await lane.close()
