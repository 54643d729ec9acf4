"""The ledger in one SQLite file: for several processes of one machine, and for after a crash.

All statements run in one thread of the store's own, because SQLite blocks. `synchronous=FULL` in WAL
mode: what was committed survives a power cut, not only a killed process.
"""

import asyncio
import functools
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from ekiden.errors import UsageError
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Busy, Claim, Claimed, Recorded, Refused

__all__ = ["SQLiteStore"]

T = TypeVar("T")

_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS rounds (
    id TEXT PRIMARY KEY,
    answers TEXT NOT NULL,
    fence INTEGER NOT NULL,
    leased_until REAL NOT NULL,
    expires REAL NOT NULL,
    outcome BLOB
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS round_steps (
    round_id TEXT NOT NULL,
    key TEXT NOT NULL,
    entry BLOB NOT NULL,
    PRIMARY KEY (round_id, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS journals (
    id TEXT PRIMARY KEY,
    data BLOB NOT NULL,
    expires REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rounds_expires ON rounds (expires);
CREATE INDEX IF NOT EXISTS journals_expires ON journals (expires);
"""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


class SQLiteStore:
    """Implements `ekiden.rounds.ledger.Ledger`."""

    shared = True

    def __init__(self, path: str | Path, *, busy_seconds: float = 10.0) -> None:
        self._path = str(path)
        self._busy_seconds = busy_seconds
        self._thread = ThreadPoolExecutor(1, "ekiden-sqlite")
        self._connection: sqlite3.Connection | None = None

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        call = functools.partial(self._locked, work, *arguments)
        # Shielded: a request that is cancelled must not leave a transaction half way.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, call))

    def _locked(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work` in one transaction that no other process can interleave with."""
        connection = self._connection or self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection, *arguments)
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
        return result

    def _open(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self._path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
            )
            self._use_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > _SCHEMA_VERSION:
                raise UsageError(f"{self._path} was written by a newer ekiden (schema {version})")
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        except sqlite3.Error as error:
            raise UsageError(f"the store {self._path} cannot be opened: {error}") from error
        self._connection = connection
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

    def peek(self, round_id: str) -> tuple[str, bytes] | None:
        """Not without waiting for the disk."""
        return None

    async def claim(self, round_id: str, answers: str, *, now: float, lease: float, expires: float) -> Claim:
        """Try to own a round."""
        return await self._run(_claim, round_id, answers, now, lease, expires)

    async def renew(self, round_id: str, fence: int, *, now: float, lease: float) -> bool:
        """Keep a claim for longer."""
        return await self._run(_update, "leased_until = ?", now + lease, round_id, fence)

    async def commit(self, round_id: str, fence: int, entries: Mapping[str, Entry]) -> bool:
        """Remember entries."""
        rows = [(round_id, key, _encode(entry)) for key, entry in entries.items()]
        return await self._run(_commit, round_id, fence, rows)

    async def finish(self, round_id: str, fence: int, outcome: bytes) -> bool:
        """Record how the round ended."""
        return await self._run(_update, "outcome = ?", outcome, round_id, fence)

    async def release(self, round_id: str, fence: int) -> None:
        """Give a claim back."""
        await self._run(_update, "leased_until = ?", 0.0, round_id, fence)

    async def put_journal(self, journal_id: str, data: bytes, *, expires: float) -> None:
        """Keep a journal."""
        await self._run(_put_journal, journal_id, data, expires)

    async def get_journal(self, journal_id: str) -> bytes | None:
        """A journal that was kept."""
        return await self._run(_get_journal, journal_id)

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        await self._run(_purge, now)

    async def close(self) -> None:
        """Close the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _claim(
    connection: sqlite3.Connection, round_id: str, answers: str, now: float, lease: float, expires: float
) -> Claim:
    row = connection.execute(
        "SELECT answers, fence, leased_until, expires, outcome FROM rounds WHERE id = ?", (round_id,)
    ).fetchone()
    if row is None or row[3] < now:
        connection.execute("DELETE FROM round_steps WHERE round_id = ?", (round_id,))
        connection.execute(
            "INSERT OR REPLACE INTO rounds VALUES (?, ?, 1, ?, ?, NULL)",
            (round_id, answers, now + lease, expires),
        )
        return Claimed(1, {})
    ran_with, fence, leased_until, _, outcome = row
    kept = connection.execute("SELECT key, entry FROM round_steps WHERE round_id = ?", (round_id,)).fetchall()
    if ran_with != answers and (outcome is not None or kept or leased_until > now):
        return Refused()
    if outcome is not None:
        return Recorded(outcome)
    if leased_until > now:
        return Busy()
    connection.execute(
        "UPDATE rounds SET answers = ?, fence = ?, leased_until = ? WHERE id = ?",
        (answers, fence + 1, now + lease, round_id),
    )
    return Claimed(fence + 1, {key: _decode(entry) for key, entry in kept})


def _update(connection: sqlite3.Connection, change: str, value: Any, round_id: str, fence: int) -> bool:
    # `change` is one of this module's own literals, never input.
    changed = connection.execute(
        f"UPDATE rounds SET {change} WHERE id = ? AND fence = ? AND outcome IS NULL",  # noqa: S608
        (value, round_id, fence),
    )
    return changed.rowcount == 1


def _commit(
    connection: sqlite3.Connection, round_id: str, fence: int, rows: list[tuple[str, str, bytes]]
) -> bool:
    owned = connection.execute(
        "SELECT 1 FROM rounds WHERE id = ? AND fence = ? AND outcome IS NULL", (round_id, fence)
    ).fetchone()
    if owned is None:
        return False
    connection.executemany("INSERT OR REPLACE INTO round_steps VALUES (?, ?, ?)", rows)
    return True


def _put_journal(connection: sqlite3.Connection, journal_id: str, data: bytes, expires: float) -> None:
    connection.execute("INSERT OR REPLACE INTO journals VALUES (?, ?, ?)", (journal_id, data, expires))


def _get_journal(connection: sqlite3.Connection, journal_id: str) -> bytes | None:
    row = connection.execute("SELECT data FROM journals WHERE id = ?", (journal_id,)).fetchone()
    return None if row is None else row[0]


def _purge(connection: sqlite3.Connection, now: float) -> None:
    connection.execute(
        "DELETE FROM round_steps WHERE round_id IN (SELECT id FROM rounds WHERE expires < ?)", (now,)
    )
    connection.execute("DELETE FROM rounds WHERE expires < ?", (now,))
    connection.execute("DELETE FROM journals WHERE expires < ?", (now,))
