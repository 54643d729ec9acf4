"""A connection that hears what other processes NOTIFY on one channel."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg import sql

from ekiden.errors import StoreUnavailable
from ekiden.stores.postgres.database import PostgresDatabase
from ekiden.stores.postgres.session import away, connect, cut_after

__all__ = ["MOST_BYTES", "Listening"]

_log = logging.getLogger(__name__)

MOST_BYTES: Final = 7900
"""A NOTIFY takes less than 8,000 bytes."""
_AGAIN_SECONDS: Final = 1.0
_PING_SECONDS: Final = 10.0
"""How often a connection on which nothing comes is tested."""
_GOODBYE_SECONDS: Final = 3.0


class Listening:
    """Calls `hear` with every payload; and `missed`, if given, when it listens again after the connection was
    cut."""

    def __init__(
        self,
        database: PostgresDatabase,
        channel: str,
        hear: Callable[[str], None],
        missed: Callable[[], None] | None = None,
    ) -> None:
        self._database = database
        self._channel = channel
        self._hear = hear
        self._missed = missed
        self._begun = asyncio.Event()
        self._was_cut = False
        self._listening: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to listen, and begin again whenever the database was away."""
        if self._listening is None or self._listening.done():
            self._begun, self._was_cut = asyncio.Event(), False
            self._listening = asyncio.create_task(self._keep_listening())

    async def begun(self) -> None:
        """Wait until it listens; not for long if the database is away. Then `missed` is called later."""
        try:
            async with asyncio.timeout(self._database.wait_seconds):
                await self._begun.wait()
        except TimeoutError:
            self._was_cut = True

    async def _keep_listening(self) -> None:
        while True:
            try:
                with away():
                    await self._listen()
            except StoreUnavailable as error:
                _log.debug("Listening on %s was interrupted: %s", self._channel, error)
            except Exception:
                _log.exception("Listening on %s failed; trying again", self._channel)
            self._was_cut = True
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _listen(self) -> None:
        connection = await connect(self._database.url, self._database.wait_seconds)
        try:
            with cut_after(connection, self._database.wait_seconds):
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
            self._begun.set()
            if self._was_cut and self._missed is not None:
                self._missed()
            await self._receive(connection)
        finally:
            with contextlib.suppress(psycopg.Error):
                await connection.close()

    async def _receive(self, connection: psycopg.AsyncConnection[Any]) -> None:
        while True:
            async for notification in connection.notifies(timeout=_PING_SECONDS):
                self._hear(notification.payload)
            with cut_after(connection, self._database.wait_seconds):
                await connection.execute("SELECT 1")

    def end(self) -> None:
        """Stop listening."""
        task, self._listening = self._listening, None
        if task is not None and not task.done():
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()

    async def close(self) -> None:
        """Stop listening, and wait until the connection is closed."""
        self.end()
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=_GOODBYE_SECONDS)
