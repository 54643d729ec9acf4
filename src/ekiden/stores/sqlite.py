"""A store in one SQLite file: for several processes of one machine, and for after a crash.

Here is the ledger of rounds; tasks are in `sqlite_tasks`, the file itself in `sqlite_file`.
"""

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Busy, Claim, Claimed, Recorded, Refused
from ekiden.stores.sqlite_file import SQLiteFile, Synchronous
from ekiden.stores.sqlite_tasks import SQLiteTasks

__all__ = ["SQLiteStore"]

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


class SQLiteStore:
    """Implements `ekiden.rounds.ledger.Ledger`; `tasks` implements `ekiden.tasks.store.TaskStore`.

    `synchronous="NORMAL"` does not wait for the disk: faster, and the last moments before a power cut may be
    lost. A killed process loses nothing either way.
    """

    shared = True

    def __init__(
        self, path: str | Path, *, busy_seconds: float = 10.0, synchronous: Synchronous = "FULL"
    ) -> None:
        self._file = SQLiteFile(path, busy_seconds=busy_seconds, synchronous=synchronous)
        self.tasks = SQLiteTasks(self._file)

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await self._file.write(lambda connection: work(connection, *arguments))

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

    async def migrate(self) -> None:
        """Make the tables, or bring them up to date. Opening the file does the same."""
        await self._file.open()

    async def close(self) -> None:
        """Close the file."""
        self.tasks.close()
        await self._file.close()


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
