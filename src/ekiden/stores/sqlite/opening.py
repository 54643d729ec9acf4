"""How a SQLite file is made, opened and brought up to date, and how it is noticed that it is gone.

The file belongs to its user alone from its making on; SQLite gives `-wal` and `-shm` the same mode.
"""

import contextlib
import os
import sqlite3
import stat
import threading
import time
from pathlib import Path
from typing import Final, Literal, TypeAlias

from ekiden.errors import StoreUnavailable, UsageError
from ekiden.stores.sqlite.schema import FILLS, MIGRATIONS

__all__ = [
    "Identity",
    "Synchronous",
    "is_open_to_others",
    "is_there",
    "make_private",
    "open_reader",
    "open_writer",
    "remove_leftovers",
    "which",
]

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]

Identity: TypeAlias = dict[str, tuple[int, int] | None]
"""Device and inode of a file and of the two that SQLite keeps beside it; None for what is not there."""

_BESIDE: Final = ("-wal", "-shm")
_PAGES_KIB: Final = 16 * 1024
"""What a connection that reads keeps of the file at most. With the 2 MiB that SQLite keeps by itself,
each look at one of a thousand tasks, out of a million, read the file 2.6 times."""
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)

_making = threading.Lock()
"""Held while a file is made: closing any handle of a file drops all locks that this process has on it."""


def make_private(path: str) -> None:
    """Make the file for its user alone, if it is not there. Where that fails, SQLite says why."""
    with _making, contextlib.suppress(OSError):
        made = os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.fchmod(made, 0o600)  # Whatever the umask.
        finally:
            os.close(made)


def is_open_to_others(path: str) -> bool:
    """Whether other users may read or write the file, as its mode says."""
    try:
        return bool(stat.S_IMODE(Path(path).stat().st_mode) & 0o077) and os.name == "posix"
    except OSError:
        return False


def which(path: str) -> Identity:
    """Which files are there now."""
    return {name: _identity(name) for name in (path, *(path + end for end in _BESIDE))}


def is_there(path: str, opened: Identity) -> bool:
    """Whether the file at the path is the one that was opened."""
    return _identity(path) == opened.get(path)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  before every commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


def remove_leftovers(path: str, opened: Identity) -> None:
    """Remove what is left beside a file that is gone: SQLite would take it for that of the next one."""
    for name in (path + end for end in _BESIDE):
        if opened.get(name) is not None and _identity(name) == opened[name]:
            with contextlib.suppress(OSError):
                Path(name).unlink()


def open_reader(path: str, busy_seconds: float) -> sqlite3.Connection:
    """A connection that only reads, and makes no file. Any thread may use it, one at a time."""
    reader = sqlite3.connect(
        f"{Path(path).absolute().as_uri()}?mode=rw",
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    reader.execute("PRAGMA query_only = ON")
    reader.execute(f"PRAGMA cache_size = -{_PAGES_KIB}")
    return reader


def open_writer(path: str, busy_seconds: float, synchronous: Synchronous) -> sqlite3.Connection:
    """The connection that writes. `UsageError`: the file cannot be used; `StoreUnavailable`: it is locked."""
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
        )
        _use_wal(connection, busy_seconds)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        _migrate(path, connection)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            kind = StoreUnavailable if _is_busy(error) else UsageError
            raise kind(f"the store {path} cannot be opened: {error}") from error
        raise
    return connection


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY  # The rest of the code says why.


def _use_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Switch to WAL. A file that another process has locked is waited for here: SQLite does not."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _migrate(path: str, connection: sqlite3.Connection) -> None:
    if _version(path, connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number in range(_version(path, connection), len(MIGRATIONS)):
            for statement in MIGRATIONS[number].split(";"):
                connection.execute(statement)
            if (fill := FILLS.get(number + 1)) is not None:
                fill(connection)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(path: str, connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise UsageError(f"{path} was written by a newer ekiden (schema {version})")
    return version
