"""One SQLite file, shared by several processes: its schema, and how it is read and written.

Whoever writes waits for the disk; so what many want to write at the same time is committed together
(group commit). In WAL mode with `synchronous=FULL` what was committed survives a power cut; with `NORMAL`
it survives a killed process, but the last moments before a power cut may be lost. Reads take no lock
and do not wait for writers, so they are made where they are asked for.
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from ekiden.errors import StoreUnavailable, UsageError
from ekiden.stores.sqlite_schema import MIGRATIONS

__all__ = ["SQLiteFile", "Synchronous"]

T = TypeVar("T")

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]

_MOST_TOGETHER: Final = 256
"""Writes that are committed together at most."""

_ITS_OWN: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.NotSupportedError,
    sqlite3.ProgrammingError,
)
"""What is wrong with a write and not with the file: it would fail again, and others need not fail with it."""


class _Write:
    __slots__ = ("error", "future", "loop", "result", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():
            return  # Whoever wanted it has gone; it is written all the same.
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _Connections:
    """What a file holds open; it outlives the file's owner for as long as it takes to close it."""

    def __init__(self) -> None:
        self.writer: sqlite3.Connection | None = None
        self.reader: sqlite3.Connection | None = None
        self.reading = threading.Lock()
        self.writing = threading.Lock()
        """Held by whoever uses a connection: one that is closed in another thread meanwhile is a crash."""

    def close(self) -> None:
        with self.writing, self.reading:
            for connection in (self.writer, self.reader):
                if connection is not None:
                    connection.close()
            self.writer = self.reader = None


class SQLiteFile:
    """The file, with one thread that writes."""

    def __init__(self, path: str | Path, *, busy_seconds: float, synchronous: Synchronous) -> None:
        self.path = str(path)
        self._busy_seconds = busy_seconds
        self._synchronous = synchronous
        self._thread = ThreadPoolExecutor(1, "ekiden-sqlite")
        self._queue: deque[_Write] = deque()
        self._lock = threading.Lock()
        self._draining = False
        self._open = _Connections()
        weakref.finalize(self, self._open.close)  # Who forgets its store leaves no connection behind.

    # Writing

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction that no other process interleaves with; durable when this returns."""
        write = _Write(work, asyncio.get_running_loop())
        with self._lock:
            self._queue.append(write)
            if not self._draining:
                self._draining = True
                self._thread.submit(self._drain)
        # A caller that is cancelled leaves no transaction half way: the thread knows nothing of it.
        result: T = await write.future
        return result

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._draining = False
                    return
                count = min(len(self._queue), _MOST_TOGETHER)
                batch = [self._queue.popleft() for _ in range(count)]
            with self._open.writing:
                self._commit(batch)
            for write in batch:
                with contextlib.suppress(RuntimeError):  # Its loop was closed meanwhile.
                    write.loop.call_soon_threadsafe(write.settle)

    def _commit(self, batch: list[_Write]) -> None:
        try:
            connection = self._open.writer or self._open_writer()
            connection.execute("BEGIN IMMEDIATE")
            try:
                for write in batch:
                    self._attempt(connection, write)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            problem = StoreUnavailable(f"the store {self.path} cannot be written: {error}")
            problem.__cause__ = error
            for write in batch:
                write.error = problem
        except BaseException as error:
            for write in batch:
                write.error = error

    def _attempt(self, connection: sqlite3.Connection, write: _Write) -> None:
        """Run one write of several; what it raises is undone and concerns nobody else."""
        connection.execute("SAVEPOINT one")
        try:
            write.result = write.work(connection)
        except BaseException as error:
            if isinstance(error, sqlite3.Error) and not isinstance(error, _ITS_OWN):
                raise
            connection.execute("ROLLBACK TO one")
            write.error = error
        connection.execute("RELEASE one")

    # Reading

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Look at what is committed."""
        if self.path == ":memory:":
            return await self.write(work)  # There is no file that a second connection could read.
        if self._open.writer is None:
            await self.open()
        try:
            with self._open.reading:
                return work(self._open.reader or self._open_reader())
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the store {self.path} cannot be read: {error}") from error

    def _open_reader(self) -> sqlite3.Connection:
        reader = self._open.reader = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        reader.execute("PRAGMA query_only = ON")
        return reader

    # Opening and closing

    async def open(self) -> None:
        """Make the file, and bring its schema up to date."""
        await self.write(_nothing)

    def _open_writer(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(
                self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
            )
            self._use_wal(connection)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._migrate(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise UsageError(f"the store {self.path} cannot be opened: {error}") from error
            raise
        self._open.writer = connection
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switch to WAL. A file that another process has locked is waited for here: SQLite does not."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if self._version(connection) == len(MIGRATIONS):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._version(connection)
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _version(self, connection: sqlite3.Connection) -> int:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise UsageError(f"{self.path} was written by a newer ekiden (schema {version})")
        return version

    async def close(self) -> None:
        """Close the file. Whoever uses it again opens it again."""
        thread, self._thread = self._thread, ThreadPoolExecutor(1, "ekiden-sqlite")
        await asyncio.get_running_loop().run_in_executor(thread, self._open.close)
        thread.shutdown()


def _nothing(connection: sqlite3.Connection) -> None:
    return None
