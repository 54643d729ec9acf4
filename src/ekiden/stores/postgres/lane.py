"""A few connections to Postgres that are reserved for one purpose.

A lane opens a connection at the moment when it is needed, not in the background. So a lease is renewed as
soon as the database is back, before another worker takes it over, and nothing is left that outlives the loop.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from ekiden.stores.postgres.schema import Connection
from ekiden.stores.postgres.session import connect, cut_after

__all__ = ["Lane"]

_FRESH_SECONDS: Final = 1.0
"""A connection that was used so short a time ago is not tested again."""
_IDLE_SECONDS: Final = 600.0
"""A connection that nobody needed for so long is closed. The database has better uses for its memory."""


class Lane:
    """At most so many connections, each used by one caller at a time."""

    def __init__(self, url: str, *, most: int, wait_seconds: float) -> None:
        self._url = url
        self._most = most
        self._wait_seconds = wait_seconds
        self._room = asyncio.Semaphore(most)
        self._idle: list[tuple[float, psycopg.AsyncConnection[Any]]] = []
        self._is_closed = False

    @asynccontextmanager
    async def connection(self, *, within: float | None = None) -> AsyncGenerator[Connection, None]:
        """A connection for single statements; waits until one is free, or so many seconds."""
        await self._enter(within)
        try:
            connection = await self._ready()
            try:
                with cut_after(connection, self._wait_seconds):
                    yield connection
            finally:
                await self._put_back(connection)
        finally:
            self._room.release()

    async def _enter(self, within: float | None) -> None:
        try:
            async with asyncio.timeout(within):
                await self._room.acquire()
        except TimeoutError:
            raise TimeoutError(f"all {self._most} connections were in use for {within:g} s") from None

    async def _ready(self) -> psycopg.AsyncConnection[Any]:
        while self._idle:
            used_at, connection = self._idle.pop()
            if time.monotonic() - used_at < _FRESH_SECONDS or await self._is_good(connection):
                return connection
        return await connect(self._url, self._wait_seconds)

    async def _is_good(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        try:
            with cut_after(connection, self._wait_seconds):
                await connection.execute("SELECT 1")
        except psycopg.Error:
            await _close(connection)
            return False
        except BaseException:
            await _close(connection)
            raise
        return True

    async def _put_back(self, connection: psycopg.AsyncConnection[Any]) -> None:
        if self._is_closed or connection.info.transaction_status != TransactionStatus.IDLE:
            await _close(connection)
            return
        now = time.monotonic()
        self._idle.append((now, connection))
        while now - self._idle[0][0] > _IDLE_SECONDS:  # The first is the one that was not used for longest.
            await _close(self._idle.pop(0)[1])

    async def close(self) -> None:
        """Close the connections; those in use are closed when they come back."""
        self._is_closed = True
        while self._idle:
            await _close(self._idle.pop()[1])


async def _close(connection: psycopg.AsyncConnection[Any]) -> None:
    with contextlib.suppress(psycopg.Error):
        await connection.close()
