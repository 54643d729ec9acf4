"""One SQLite file, shared by several processes: how it is read and written.

A commit waits for the disk, so writes that come at the same time are committed together (group commit). In
WAL mode with `synchronous=FULL` what was committed survives a power cut; with `NORMAL` it survives a killed
process, but the last moments before a power cut may be lost. Reads take no lock and do not wait for writers:
a short one is made where it is asked for, a long one in a thread.
"""

import asyncio
import contextlib
import logging
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from ekiden.errors import StoreUnavailable, UsageError
from ekiden.signals import FileClosed
from ekiden.stores.sqlite.one_thread import OneThread
from ekiden.stores.sqlite.opening import (
    Identity,
    Synchronous,
    is_open_to_others,
    is_there,
    make_private,
    open_reader,
    open_writer,
    remove_leftovers,
    which,
)

__all__ = ["STALE_PART", "SQLiteFile", "Synchronous"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_MOST_TOGETHER: Final = 256
"""Writes that are committed together at most."""

_TOLD_SECONDS: Final = 0.005
"""Seconds that the next commit waits at most for the callers of the last one: about as long as a commit."""

_MOST_WAITING: Final = 256 * 1024 * 1024
"""Bytes that wait to be written at most. Above it a write is refused with `StoreUnavailable`."""

STALE_PART: Final = 1 / 4
"""A claim on what another worker holds is given up if it waited longer than this part of a lease for the
file. Nobody could write meanwhile, so the other one could not renew: that it did not says nothing."""

_READ_TRIES: Final = 100
"""How often a read opens a file again that somebody closes in the same moment."""

_ITS_OWN: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.NotSupportedError,
    sqlite3.ProgrammingError,
)
"""Errors of a single write, not of the file: it would fail again, and the others of its batch go on."""


class _Write:
    __slots__ = ("error", "future", "loop", "result", "size", "work")

    def __init__(
        self, work: Callable[[sqlite3.Connection], Any], loop: asyncio.AbstractEventLoop, size: int
    ) -> None:
        self.work = work
        self.loop = loop
        self.size = size
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():
            return  # The caller was cancelled; it is written all the same.
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _Reader:
    """A connection that only reads. Use it under its lock: closed meanwhile by another thread, it crashes."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        self.lock = threading.Lock()

    def close(self) -> None:
        with self.lock:
            connection, self.connection = self.connection, None
            if connection is not None:
                connection.close()


class _Connections:
    """The connections to a file. They outlive the `SQLiteFile` for as long as it takes to close them."""

    def __init__(self) -> None:
        self.writer: sqlite3.Connection | None = None
        self.reader = _Reader()
        """For short reads, in whichever thread wants them."""
        self.scanner = _Reader()
        """For long reads."""
        self.identity: Identity = {}
        self.writing = threading.RLock()

    def close(self) -> None:
        with self.writing:
            # First: a read opens a connection only while there is a writer.
            writer, self.writer = self.writer, None
            self.reader.close()
            self.scanner.close()
            # Last: who closes the last connection removes the WAL, and no event loop waits for this one.
            if writer is not None:
                writer.close()


class SQLiteFile:
    """The file, with one thread that writes and one for long reads."""

    def __init__(self, path: str | Path, *, busy_seconds: float, synchronous: Synchronous) -> None:
        self.path = str(path)
        self._busy_seconds = busy_seconds
        self._synchronous: Synchronous = synchronous
        self._writes = OneThread("ekiden-sqlite")
        self._scans = OneThread("ekiden-sqlite-scan")
        self._queue: deque[_Write] = deque()
        self._waiting = 0
        self._lock = threading.Lock()
        self._draining = False
        self._was_open = False
        self._open = _Connections()
        weakref.finalize(self, self._open.close)  # Also if `close` is never called.

    @property
    def in_memory(self) -> bool:
        """Whether there is no file, so that no other process has these rows."""
        return self.path == ":memory:"

    # Writing

    async def write(self, work: Callable[[sqlite3.Connection], T], *, size: int = 0) -> T:
        """Run `work` in a transaction that no other process interleaves with; durable when this returns.

        It may be run twice, and then the second run counts. `size`: the bytes that it holds while it waits.
        """
        write = _Write(work, asyncio.get_running_loop(), size)
        with self._lock:
            if self._waiting > _MOST_WAITING:
                raise StoreUnavailable(
                    f"too much waits to be written to the store {self.path}; try again later"
                )
            self._waiting += size
            self._queue.append(write)
            if not self._draining:
                self._draining = True
                self._writes.submit(self._drain)
        # If the caller is cancelled, the thread finishes the transaction all the same.
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
                self._waiting -= sum(write.size for write in batch)
            with self._open.writing:
                self._commit(batch)
            _tell(batch)

    def _commit(self, batch: list[_Write]) -> None:
        try:
            connection = self._writer()
            if not _together(connection, batch, apart=False):
                _together(connection, batch, apart=True)
        except sqlite3.Error as error:
            problem = StoreUnavailable(f"the store {self.path} cannot be written: {error}")
            problem.__cause__ = error
            for write in batch:
                write.error = problem
        except BaseException as error:
            for write in batch:
                write.error = error

    # Reading

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Look at something small that is committed."""
        if self.in_memory:
            return await self.write(work)  # There is no file that a second connection could read.
        for _ in range(_READ_TRIES):
            if self._open.writer is None:
                await self.open()
            try:
                return self._read(self._open.reader, work)
            except FileClosed:
                continue
        raise self._closed_too_often()

    async def scan(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Look at what is committed, in a thread, because that may take a while."""
        if self.in_memory:
            return await self.write(work)
        for _ in range(_READ_TRIES):
            if self._open.writer is None:
                await self.open()
            with contextlib.suppress(FileClosed):
                return await asyncio.wrap_future(self._scans.submit(self._scan, work))
        raise self._closed_too_often()

    def _scan(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._check()
        return self._read(self._open.scanner, work)

    def _read(self, reader: _Reader, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with reader.lock:
                if self._open.writer is None:
                    raise FileClosed
                if reader.connection is None:
                    reader.connection = open_reader(self.path, self._busy_seconds)
                return work(reader.connection)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _closed_too_often(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store {self.path} is closed by others all the time; try again")

    def _unreadable(self, error: sqlite3.Error) -> StoreUnavailable:
        return StoreUnavailable(f"the store {self.path} cannot be read: {error}")

    # Opening and closing

    async def open(self) -> None:
        """Make the file, and bring its schema up to date."""
        await self.write(_nothing)

    def _writer(self) -> sqlite3.Connection:
        self._check()
        return self._open.writer or self._open_writer()

    def _open_writer(self) -> sqlite3.Connection:
        if not self.in_memory:
            make_private(self.path)
            if not self._was_open and is_open_to_others(self.path):
                _log.warning(
                    "Other users may read or change %s, where arguments and results lie in the clear."
                    " `chmod 600` it if they should not",
                    self.path,
                )
        try:
            before = which(self.path)
            writer = open_writer(self.path, self._busy_seconds, self._synchronous)
        except UsageError as error:
            if self._was_open and isinstance(error.__cause__, sqlite3.Error):
                raise StoreUnavailable(str(error)) from error
            raise
        # If it was replaced while it was opened, the next write notices that.
        self._open.identity = {**which(self.path), self.path: before[self.path]}
        self._open.writer, self._was_open = writer, True
        return writer

    def _check(self) -> None:
        """`StoreUnavailable` if the open file is not at its path any more; the next write opens what is."""
        opened, identity = self._open, self._open.identity
        if opened.writer is None or self.in_memory or is_there(self.path, identity):
            return
        with opened.writing:
            if opened.identity is not identity:
                return  # Another thread has noticed it already, or has opened it again.
            opened.close()
            opened.identity = {}
            remove_leftovers(self.path, identity)
        problem = f"{self.path} was deleted or replaced while it was in use"
        _log.critical(
            "%s. What was kept in it is lost to this process, which goes on with what is there", problem
        )
        raise StoreUnavailable(f"the store {problem}; try again")

    async def close(self) -> None:
        """Close the file. The next use opens it again."""
        # In the thread that writes: after what is being written, and before whatever comes later.
        await asyncio.wrap_future(self._writes.submit(self._open.close))
        self._writes.rest()
        self._scans.rest()


def _together(connection: sqlite3.Connection, batch: list[_Write], *, apart: bool) -> bool:
    """Commit writes together; False if one failed half way. With `apart` that one fails alone, at a cost."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for write in batch:
            if not _attempt(connection, write, apart=apart):
                connection.execute("ROLLBACK")
                return False
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return True


def _attempt(connection: sqlite3.Connection, write: _Write, *, apart: bool) -> bool:
    """Run one write; False if it failed when it had changed something, which is still there."""
    if apart:
        connection.execute("SAVEPOINT one")
    write.result = write.error = None
    before = connection.total_changes
    try:
        write.result = write.work(connection)
    except BaseException as error:
        if isinstance(error, sqlite3.Error) and not isinstance(error, _ITS_OWN):
            raise
        write.error = error
        if connection.total_changes != before:
            if not apart:
                return False
            connection.execute("ROLLBACK TO one")
    if apart:
        connection.execute("RELEASE one")
    return True


def _tell(batch: list[_Write]) -> None:
    """Give the callers of these writes their results, and let them run: their next writes share a commit."""
    for loop in {write.loop for write in batch}:
        told, theirs = threading.Event(), [write for write in batch if write.loop is loop]
        with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile.
            loop.call_soon_threadsafe(_settle, theirs, told)
            if len(theirs) > 1:
                told.wait(_TOLD_SECONDS)


def _settle(batch: list[_Write], told: threading.Event) -> None:
    for write in batch:
        write.settle()
    batch[0].loop.call_soon(told.set)  # After all of them have run on from here.


def _nothing(connection: sqlite3.Connection) -> None:
    return None
