"""How processes hear of changes to tasks: by a NOTIFY in the transaction of the change.

Signals are hints. Watchers in the process that made a change are called without the database. While the
listening connection is cut, workers find changes only by looking.
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

_log = logging.getLogger(__name__)

_MOST_BYTES: Final = 7900
"""A NOTIFY takes less than 8,000 bytes."""
_AGAIN_SECONDS: Final = 1.0
_PING_SECONDS: Final = 10.0
"""How often a connection on which nothing comes is tested."""
_GOODBYE_SECONDS: Final = 3.0


class _News(msgspec.Struct, array_like=True):
    origin: str
    """The process that made the change: it ignores its own messages."""
    signals: list[Signal]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_News).decode


def payloads(origin: str, signals: Sequence[Signal]) -> list[str]:
    """Signals as the payloads of NOTIFY, as few as possible."""
    if not signals:
        return []
    payload = _encode(_News(origin, list(signals)))
    if len(payload) <= _MOST_BYTES:
        return [payload.decode()]
    if len(signals) == 1:
        return []  # The id has thousands of characters: found by looking only.
    half = len(signals) // 2
    return [*payloads(origin, signals[:half]), *payloads(origin, signals[half:])]


class PostgresSignals:
    """Sends and receives signals for one process."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._watchers = Watchers()
        self.origin = secrets.token_hex(6)
        self._listening: asyncio.Task[None] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def tell(self, record: TaskRecord) -> None:
        """Call the watchers of this process. Call it after the commit."""
        self._watchers.tell(Signal(record.id, record.due))

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` for every change; call what is returned to end that."""
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
                _log.debug("Listening for changes of tasks was interrupted: %s", error)
            except Exception:
                _log.exception("Listening for changes of tasks failed; trying again")
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
        """Stop listening."""
        self._end()
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=_GOODBYE_SECONDS)
