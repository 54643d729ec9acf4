"""Tasks in one SQLite file: rows with what is searched for in columns of its own, journals beside them."""

import functools
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ekiden.rounds.journal import Entry
from ekiden.stores.sqlite_file import SQLiteFile
from ekiden.stores.sqlite_wake import WakeSocket
from ekiden.stores.watching import Watchers
from ekiden.tasks.record import TaskRecord, decode_record, encode_record
from ekiden.tasks.states import State
from ekiden.tasks.store import Glance, Place, Signal, TaskStore, Watcher, is_quiet

__all__ = ["SQLiteTasks"]

T = TypeVar("T")

_BY_ID: Final = "SELECT record, state, fence, attempts, due FROM tasks WHERE id = ?"
_BY_FLOW: Final = "SELECT record, state, fence, attempts, due FROM tasks WHERE flow = ?"
_NEWEST: Final = """
    SELECT record, state, fence, attempts, due FROM tasks
    WHERE (:audience IS NULL OR audience = :audience) AND (:state IS NULL OR state = :state)
      AND (:created IS NULL OR (created, id) < (:created, :id))
    ORDER BY created DESC, id DESC LIMIT :limit
"""
_HELD: Final = """
    SELECT state, attempts FROM tasks WHERE id = ? AND fence = ? AND state IN ('running', 'stopping')
"""
_OVERDUE: Final = """
    SELECT id FROM tasks
    WHERE expires <= ? AND state NOT IN ('completed', 'failed', 'cancelled', 'tidying') LIMIT ?
"""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Entry).decode


class SQLiteTasks(TaskStore):
    """Implements the port on a file."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._watchers = Watchers()
        self._wake = WakeSocket(file.path)

    def _tell(self, record: TaskRecord) -> None:
        signal = Signal(record.id, record.due)
        self._watchers.tell(signal)
        self._wake.tell(signal)

    async def insert(self, record: TaskRecord, entries: Mapping[str, Entry]) -> TaskRecord:
        """Keep a new task."""
        rows = _packed(entries)

        def work(connection: sqlite3.Connection) -> TaskRecord:
            known = connection.execute(_BY_FLOW, (record.flow,))
            if (row := known.fetchone()) is not None:
                return _record(row)
            connection.execute(
                "INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    record.id,
                    record.flow,
                    record.audience,
                    record.state,
                    record.fence,
                    record.attempts,
                    record.due,
                    record.expires,
                    record.created,
                    encode_record(record),
                ),
            )
            _add_entries(connection, record.id, rows)
            return record

        kept = await self._file.write(work)
        if kept is record:
            self._tell(record)
        return kept

    async def change(
        self, task_id: str, make: Callable[[TaskRecord], T], entries: Mapping[str, Entry] | None = None
    ) -> tuple[TaskRecord, T] | None:
        """Change a row by a function."""
        rows = _packed(entries or {})

        def work(connection: sqlite3.Connection) -> tuple[TaskRecord, T, bool] | None:
            row = connection.execute(_BY_ID, (task_id,)).fetchone()
            if row is None:
                return None
            record = _record(row)
            before = record.updated
            made = make(record)
            connection.execute(
                "UPDATE tasks SET state = ?, fence = ?, attempts = ?, due = ?, expires = ?, record = ?"
                " WHERE id = ?",
                (
                    record.state,
                    record.fence,
                    record.attempts,
                    record.due,
                    record.expires,
                    encode_record(record),
                    task_id,
                ),
            )
            _add_entries(connection, task_id, rows)
            return record, made, is_quiet(record, before)

        changed = await self._file.write(work)
        if changed is None:
            return None
        record, made, quiet = changed
        if not quiet:
            self._tell(record)
        return record, made

    async def append(self, task_id: str, fence: int, entries: Mapping[str, Entry]) -> State | None:
        """Add to a journal."""
        rows = _packed(entries)

        def work(connection: sqlite3.Connection) -> State | None:
            row = connection.execute(
                _HELD,
                (task_id, fence),
            ).fetchone()
            if row is None:
                return None
            if row[1] > 1:
                connection.execute("UPDATE tasks SET attempts = 1 WHERE id = ?", (task_id,))
            _add_entries(connection, task_id, rows)
            state: State = row[0]
            return state

        return await self._file.write(work)

    async def load(self, task_id: str) -> TaskRecord | None:
        """A row."""

        def work(connection: sqlite3.Connection) -> TaskRecord | None:
            row = connection.execute(_BY_ID, (task_id,)).fetchone()
            return None if row is None else _record(row)

        return await self._file.read(work)

    async def glance(self, task_id: str) -> Glance | None:
        """A row for the eye: clients look often, and mostly nothing has changed."""

        def work(connection: sqlite3.Connection) -> Glance | None:
            row = connection.execute(_BY_ID, (task_id,)).fetchone()
            return None if row is None else _glance(row)

        return await self._file.read(work)

    async def entries(self, task_id: str) -> dict[str, Entry]:
        """A journal."""

        def work(connection: sqlite3.Connection) -> dict[str, Entry]:
            rows = connection.execute(
                "SELECT key, entry FROM task_entries WHERE task_id = ? ORDER BY number", (task_id,)
            )
            return {key: _unpack(entry) for key, entry in rows}

        return await self._file.read(work)

    async def due(self, audience: str, *, now: float, limit: int) -> list[str]:
        """Tasks that may be claimed."""
        return await self._ids(
            "SELECT id FROM tasks WHERE audience = ? AND due <= ? ORDER BY due LIMIT ?", audience, now, limit
        )

    async def next_due(self, audience: str) -> float | None:
        """When the next may be."""

        def work(connection: sqlite3.Connection) -> float | None:
            found: float | None = connection.execute(
                "SELECT min(due) FROM tasks WHERE audience = ? AND due IS NOT NULL", (audience,)
            ).fetchone()[0]
            return found

        return await self._file.read(work)

    async def extend(self, held: Mapping[str, int], *, until: float) -> set[str]:
        """Extend leases."""

        def work(connection: sqlite3.Connection) -> set[str]:
            return {
                task_id
                for task_id, fence in held.items()
                if connection.execute(
                    "UPDATE tasks SET due = ? WHERE id = ? AND fence = ?"
                    " AND state IN ('running', 'stopping', 'tidying')",
                    (until, task_id, fence),
                ).rowcount
            }

        return await self._file.write(work)

    async def overdue(self, *, now: float, limit: int) -> list[str]:
        """Tasks whose time is over."""
        return await self._ids(_OVERDUE, now, limit)

    async def forget(self, *, before: float) -> int:
        """Remove old tasks; looks first, because there is mostly nothing to do."""
        old = await self._ids("SELECT id FROM tasks WHERE expires < ? LIMIT 1000", before)
        if not old:
            return 0

        def work(connection: sqlite3.Connection) -> int:
            named = [(task_id,) for task_id in old]
            connection.executemany("DELETE FROM task_entries WHERE task_id = ?", named)
            return connection.executemany("DELETE FROM tasks WHERE id = ?", named).rowcount

        return await self._file.write(work)

    async def listing(
        self,
        *,
        audience: str | None = None,
        state: State | None = None,
        after: Place | None = None,
        limit: int = 100,
    ) -> Sequence[TaskRecord]:
        """Tasks, the newest first."""

        def work(connection: sqlite3.Connection) -> list[TaskRecord]:
            created, task_id = after or (None, None)
            values = {"audience": audience, "state": state, "created": created, "id": task_id, "limit": limit}
            rows = connection.execute(_NEWEST, values)
            return [_record(row) for row in rows]

        return await self._file.read(work)

    def watch(self, watcher: Watcher, *, works: bool = False) -> Callable[[], None]:
        """Be told of changes, those of other processes too."""
        remove = self._watchers.add(watcher)
        self._wake.listen(self._watchers.tell)

        def end() -> None:
            remove()
            if not self._watchers:
                self._wake.deafen()

        return end

    def close(self) -> None:
        """Give the sockets back."""
        self._wake.close()

    async def _ids(self, query: str, *values: Any) -> list[str]:
        return await self._file.read(lambda connection: [row[0] for row in connection.execute(query, values)])


def _record(row: Any) -> TaskRecord:
    """A row as a record: what has a column of its own may be newer there."""
    record = decode_record(row[0])
    record.state, record.fence, record.attempts, record.due = row[1:5]
    return record


@functools.lru_cache(2048)
def _glance(row: tuple[Any, ...]) -> Glance:
    return Glance(_record(row))


def _packed(entries: Mapping[str, Entry]) -> list[tuple[str, bytes]]:
    return [(key, _pack(entry)) for key, entry in entries.items()]


def _add_entries(connection: sqlite3.Connection, task_id: str, rows: list[tuple[str, bytes]]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO task_entries (task_id, key, entry) VALUES (?, ?, ?)",
        [(task_id, key, entry) for key, entry in rows],
    )
