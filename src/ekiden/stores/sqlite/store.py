"""The ledger of rounds in one SQLite file. Tasks are in `tasks`, the file itself in `file`."""

import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ekiden.bus.datagrams import folder_beside
from ekiden.bus.sockets import SocketBus
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import (
    ABANDONED_SECONDS,
    RELEASED,
    Busy,
    Claim,
    Claimed,
    Known,
    Renewal,
    RoundRow,
    Take,
    decide_claim,
    decide_look,
    decode_entry,
    encode_entry,
)
from ekiden.stores.keys_of_entries import key_from_bytes, key_to_bytes
from ekiden.stores.sqlite.file import STALE_PART, SQLiteFile, Synchronous
from ekiden.stores.sqlite.people import SQLitePeople
from ekiden.stores.sqlite.portions import remove_in_portions
from ekiden.stores.sqlite.sessions import SQLiteSessions
from ekiden.stores.sqlite.stories import SQLiteStories
from ekiden.stores.sqlite.tasks import SQLiteTasks
from ekiden.wire.json import decode, encode

__all__ = ["SQLiteStore"]

T = TypeVar("T")


class SQLiteStore:
    """Implements `ekiden.Store`.

    `synchronous="NORMAL"` does not wait for the disk: faster, and the last moments before a power cut may be
    lost. A killed process loses nothing either way.
    """

    shared = True
    waits = True

    def __init__(
        self, path: str | Path, *, busy_seconds: float = 10.0, synchronous: Synchronous = "FULL"
    ) -> None:
        self._file = SQLiteFile(path, busy_seconds=busy_seconds, synchronous=synchronous)
        in_memory = self._file.in_memory
        self.tasks = SQLiteTasks(self._file)
        self.people = SQLitePeople(self._file)
        self.sessions = None if in_memory else SQLiteSessions(self._file)
        self.bus = None if in_memory else SocketBus(folder_beside(str(path), "bus"))
        told = None if in_memory else SocketBus(folder_beside(str(path), "stories"))
        self.stories = SQLiteStories(self._file, told)
        self.another: Callable[[], SQLiteStore] | None = None
        """Opens the same file with connections of its own, for another event loop."""
        if not in_memory:
            self.another = lambda: SQLiteStore(path, busy_seconds=busy_seconds, synchronous=synchronous)

    async def _run(self, work: Callable[..., T], *arguments: Any, size: int = 0) -> T:
        return await self._file.write(lambda connection: work(connection, *arguments), size=size)

    def is_new(self, round_id: str) -> bool:
        """Always False: it takes a look into the file."""
        return False

    async def look(self, round_id: str, history: str, *, now: float) -> Known | None:
        """How a round ended, that it has not ended, or that it belongs to another history."""
        return decide_look(await self._file.read(lambda reader: _row(reader, round_id)), history, now)

    async def claim(
        self,
        round_id: str,
        history: str,
        *,
        now: float,
        lease: float,
        expires: float,
        instead_of: Busy | None = None,
    ) -> Claim:
        """Try to own a round."""
        # A claim that cannot be had only reads, and leaves the one writing thread to others. An overdue owner
        # is looked at again in that thread: while the file is locked for writing, it can be read but no
        # owner can renew, so being overdue says nothing.
        row = await self._file.read(lambda reader: _row(reader, round_id))
        decided = decide_claim(row, history, now, instead_of)
        is_overdue = isinstance(decided, Busy) and decided.leased_until <= now
        if not isinstance(decided, Take) and not is_overdue:
            return decided
        in_time = time.monotonic() + lease * STALE_PART
        return await self._run(_claim, round_id, history, now, lease, expires, instead_of, in_time)

    async def renew(self, claims: Mapping[str, Renewal], *, until: float) -> dict[str, bool]:
        """Keep claims for longer."""
        return await self._run(_renew, claims, until)

    async def commit(self, round_id: str, fence: int, entries: Mapping[str, Entry]) -> bool:
        """Remember entries."""
        rows = [(round_id, key_to_bytes(key), encode_entry(entry)) for key, entry in entries.items()]
        return await self._run(_commit, round_id, fence, rows, size=sum(len(row[2]) for row in rows))

    async def finish(self, round_id: str, fence: int, outcome: bytes) -> bool:
        """Record how the round ended."""
        return await self._run(_finish, round_id, fence, outcome, size=len(outcome))

    async def release(self, round_id: str, fence: int) -> None:
        """Give a claim back."""
        await self._run(_release, round_id, fence)

    async def put_journal(self, journal_id: str, data: bytes, *, expires: float) -> None:
        """Keep a journal."""
        await self._run(_put_journal, journal_id, data, expires, size=len(data))

    async def get_journal(self, journal_id: str) -> bytes | None:
        """A journal that was kept."""
        return await self._file.read(lambda reader: _get_journal(reader, journal_id))

    async def purge(self, *, now: float) -> None:
        """Forget what has expired, some at a time."""
        rounds = f"SELECT id FROM rounds WHERE {_FORGETTABLE}"  # noqa: S608
        await remove_in_portions(self._file, rounds, (now, now - ABANDONED_SECONDS), _forget_round)
        journals = "SELECT id FROM journals WHERE expires < ?"
        await remove_in_portions(self._file, journals, (now,), _forget_journal)

    async def migrate(self) -> None:
        """Make the tables, or bring them up to date. Opening the file does the same."""
        await self._file.open()

    async def close(self) -> None:
        """Close the file."""
        self.tasks.close()
        await self.stories.close()
        if self.bus is not None:
            await self.bus.close()
        await self._file.close()


def _row(connection: sqlite3.Connection, round_id: str) -> RoundRow | None:
    row = connection.execute(
        "SELECT history, fence, leased_until, expires, outcome,"
        " EXISTS (SELECT 1 FROM round_steps WHERE round_id = rounds.id) FROM rounds WHERE id = ?",
        (round_id,),
    ).fetchone()
    if row is None:
        return None
    history, fence, leased_until, expires, outcome, has_entries = row
    return RoundRow(history, fence, leased_until, expires, outcome, bool(has_entries))


def _claim(
    connection: sqlite3.Connection,
    round_id: str,
    history: str,
    now: float,
    lease: float,
    expires: float,
    instead_of: Busy | None,
    in_time: float,
) -> Claim:
    if time.monotonic() > in_time:
        instead_of = None  # The owner is watched anew.
    decided = decide_claim(_row(connection, round_id), history, now, instead_of)
    if not isinstance(decided, Take):
        return decided
    if decided.is_fresh:
        connection.execute("DELETE FROM round_steps WHERE round_id = ?", (round_id,))
        connection.execute(
            "INSERT OR REPLACE INTO rounds (id, history, fence, leased_until, expires)"
            " VALUES (?, ?, ?, ?, ?)",
            (round_id, history, decided.fence, now + lease, expires),
        )
        return Claimed(decided.fence, {})
    connection.execute(
        "UPDATE rounds SET history = ?, fence = ?, leased_until = ? WHERE id = ?",
        (history, decided.fence, now + lease, round_id),
    )
    kept = connection.execute(
        "SELECT key, entry FROM round_steps WHERE round_id = ? ORDER BY number", (round_id,)
    )
    return Claimed(decided.fence, {key_from_bytes(key): decode_entry(entry) for key, entry in kept})


_IS_OWNED = f"id = ? AND fence = ? AND outcome IS NULL AND leased_until <> {RELEASED}"


# A thread that stands by for a blocked event loop waits for the interpreter after each row that it reads or
# writes. So the rounds that it renews come as one text, and go as one.
_OWNED_OF = f"""
    FROM json_each(?) AS wanted JOIN rounds ON rounds.id = json_extract(wanted.value, '$[0]')
    WHERE fence = json_extract(wanted.value, '$[1]') AND outcome IS NULL AND leased_until <> {RELEASED}
"""
_RENEW = f"""
    INSERT INTO rounds (id, history, fence, leased_until, expires)
    SELECT rounds.id, history, fence, ?, json_extract(wanted.value, '$[2]') {_OWNED_OF}
    ON CONFLICT (id) DO UPDATE SET leased_until = excluded.leased_until, expires = excluded.expires
"""
_RENEWED = f"SELECT json_group_array(rounds.id) {_OWNED_OF}"


def _renew(connection: sqlite3.Connection, claims: Mapping[str, Renewal], until: float) -> dict[str, bool]:
    wanted = encode([(round_id, claim.fence, claim.expires) for round_id, claim in claims.items()]).decode()
    connection.execute(_RENEW, (until, wanted))
    ours = decode(connection.execute(_RENEWED, (wanted,)).fetchone()[0].encode())
    return dict.fromkeys(claims, False) | dict.fromkeys(ours, True)


def _release(connection: sqlite3.Connection, round_id: str, fence: int) -> None:
    connection.execute(
        f"UPDATE rounds SET leased_until = ? WHERE {_IS_OWNED}",  # noqa: S608
        (RELEASED, round_id, fence),
    )


def _finish(connection: sqlite3.Connection, round_id: str, fence: int, outcome: bytes) -> bool:
    changed = connection.execute(
        f"UPDATE rounds SET outcome = ? WHERE {_IS_OWNED}",  # noqa: S608
        (outcome, round_id, fence),
    )
    if changed.rowcount == 1:
        return True
    done = connection.execute(
        "SELECT 1 FROM rounds WHERE id = ? AND fence = ? AND outcome = ?", (round_id, fence, outcome)
    )
    return done.fetchone() is not None


def _commit(
    connection: sqlite3.Connection, round_id: str, fence: int, rows: list[tuple[str, bytes, bytes]]
) -> bool:
    owned = connection.execute(f"SELECT 1 FROM rounds WHERE {_IS_OWNED}", (round_id, fence))  # noqa: S608
    if owned.fetchone() is None:
        return False
    # What is replaced gets a new number, and so moves to the end.
    connection.executemany("INSERT OR REPLACE INTO round_steps (round_id, key, entry) VALUES (?, ?, ?)", rows)
    return True


def _put_journal(connection: sqlite3.Connection, journal_id: str, data: bytes, expires: float) -> None:
    connection.execute("INSERT OR REPLACE INTO journals VALUES (?, ?, ?)", (journal_id, data, expires))


def _get_journal(connection: sqlite3.Connection, journal_id: str) -> bytes | None:
    row = connection.execute("SELECT data FROM journals WHERE id = ?", (journal_id,)).fetchone()
    return None if row is None else row[0]


_FORGETTABLE = "expires < ? AND (outcome IS NOT NULL OR leased_until < ?)"


def _forget_round(connection: sqlite3.Connection, round_id: str) -> None:
    connection.execute("DELETE FROM round_steps WHERE round_id = ?", (round_id,))
    connection.execute("DELETE FROM rounds WHERE id = ?", (round_id,))


def _forget_journal(connection: sqlite3.Connection, journal_id: str) -> None:
    connection.execute("DELETE FROM journals WHERE id = ?", (journal_id,))
