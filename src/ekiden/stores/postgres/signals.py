"""Who hears of changes to tasks: a NOTIFY in the transaction of the change, which every process listens for.

Signals are hints. A process tells itself without the database; one whose connection was cut looks by itself
until it listens again.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import psycopg

from ekiden.errors import StoreUnavailable
from ekiden.stores.postgres.database import PostgresDatabase
from ekiden.stores.postgres.session import away, connect, cut_after
from ekiden.stores.watchers import Watchers
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.store import Signal, Watcher

__all__ = ["PostgresSignals", "payloads"]

_log = logging.getLogger("ekiden.tasks")

_MOST_BYTES: Final = 7900
"""A NOTIFY takes less than 8,000 bytes."""
_AGAIN_SECONDS: Final = 1.0
_PING_SECONDS: Final = 10.0
"""How often a silent connection is asked whether it still is one."""
_GOODBYE_SECONDS: Final = 3.0


class _News(msgspec.Struct, array_like=True):
    origin: str
    """Which process it comes from: that one knows already."""
    signals: list[Signal]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_News).decode


def payloads(origin: str, signals: Sequence[Signal]) -> list[str]:
    """What is to be told, in as few messages as it fits into."""
    if not signals:
        return []
    payload = _encode(_News(origin, list(signals)))
    if len(payload) <= _MOST_BYTES:
        return [payload.decode()]
    if len(signals) == 1:
        return []  # An id of thousands of characters. Whoever waits for it looks by himself.
    half = len(signals) // 2
    return [*payloads(origin, signals[:half]), *payloads(origin, signals[half:])]


class PostgresSignals:
    """Both ways, for one process."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._watchers = Watchers()
        self.origin = secrets.token_hex(6)
        self._listening: asyncio.Task[None] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def tell(self, record: TaskRecord) -> None:
        """Tell those in this process, when the transaction is done."""
        self._watchers.tell(Signal(record.id, record.due))

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Be told of changes, until what is returned is called."""
        remove = self._watchers.add(watcher)
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._keep_listening())

        def end() -> None:
            remove()
            if not self._watchers:
                self._end()

        return end

    async def _keep_listening(self) -> None:
        """Listen, and begin again whenever the database was away."""
        while True:
            try:
                with away():
                    await self._listen()
            except StoreUnavailable as error:
                _log.debug("The database does not tell of tasks right now: %s", error)
            except Exception:
                _log.exception("Hearing of tasks failed; it begins again")
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _listen(self) -> None:
        connection = await connect(self._database.url, self._database.wait_seconds)
        self._connection = connection
        try:
            with cut_after(connection, self._database.wait_seconds):
                await connection.execute("LISTEN ekiden_tasks")
            while True:
                async for notification in connection.notifies(timeout=_PING_SECONDS):
                    self._hear(notification.payload)
                with cut_after(connection, self._database.wait_seconds):
                    await connection.execute("SELECT 1")
        finally:
            self._connection = None
            with contextlib.suppress(psycopg.Error):
                await connection.close()

    def _hear(self, payload: str) -> None:
        try:
            news = _decode(payload)
        except msgspec.MsgspecError:
            return  # Not ours, or of another version.
        if news.origin != self.origin:
            for signal in news.signals:
                self._watchers.tell(signal)

    def _end(self) -> None:
        task, self._listening = self._listening, None
        if task is not None and not task.done():
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()

    async def close(self) -> None:
        """Hear nothing any more."""
        self._end()
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=_GOODBYE_SECONDS)
