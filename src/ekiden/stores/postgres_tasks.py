"""Tasks in Postgres: the same rows as in SQLite, for workers on many machines."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, LiteralString, TypeVar

import msgspec
import psycopg

from ekiden.errors import StoreUnavailable
from ekiden.rounds.journal import Entry
from ekiden.stores.postgres_database import Connection, PostgresDatabase
from ekiden.stores.postgres_dispatch import PostgresDispatch
from ekiden.tasks.record import TaskRecord, decode_record, encode_record
from ekiden.tasks.states import State
from ekiden.tasks.store import Place, TaskStore, Watcher, is_quiet

__all__ = ["PostgresTasks"]

T = TypeVar("T")

_BY_ID: Final = "SELECT record, state, fence, attempts, due FROM ekiden_tasks WHERE id = %s"
_BY_ID_LOCKED: Final = "SELECT record, state, fence, attempts, due FROM ekiden_tasks WHERE id = %s FOR UPDATE"
_BY_FLOW: Final = "SELECT record, state, fence, attempts, due FROM ekiden_tasks WHERE flow = %s"
_INSERT: Final = """
    INSERT INTO ekiden_tasks VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (flow) DO NOTHING
"""
_UPDATE: Final = """
    UPDATE ekiden_tasks SET state = %s, fence = %s, attempts = %s, due = %s, expires = %s, record = %s
    WHERE id = %s
"""
_HELD: Final = """
    SELECT state, attempts FROM ekiden_tasks
    WHERE id = %s AND fence = %s AND state IN ('running', 'stopping') FOR UPDATE
"""
_ADD: Final = """
    INSERT INTO ekiden_task_entries (task_id, key, entry) VALUES (%s, %s, %s)
    ON CONFLICT (task_id, key) DO UPDATE SET entry = EXCLUDED.entry, number = DEFAULT
"""
_NEWEST: Final = """
    SELECT record, state, fence, attempts, due FROM ekiden_tasks
    WHERE (%(audience)s::text IS NULL OR audience = %(audience)s)
      AND (%(state)s::text IS NULL OR state = %(state)s)
      AND (%(created)s::double precision IS NULL OR (created, id) < (%(created)s, %(id)s))
    ORDER BY created DESC, id DESC LIMIT %(limit)s
"""
_OVERDUE: Final = """
    SELECT id FROM ekiden_tasks
    WHERE expires <= %s AND state NOT IN ('completed', 'failed', 'cancelled', 'tidying') LIMIT %s
"""
_EXTEND: Final = """
    UPDATE ekiden_tasks SET due = %s
    WHERE id = %s AND fence = %s AND state IN ('running', 'stopping', 'tidying') RETURNING id
"""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Entry).decode


class PostgresTasks(TaskStore):
    """Implements the port on a database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._dispatch = PostgresDispatch(database)

    async def insert(self, record: TaskRecord, entries: Mapping[str, Entry]) -> TaskRecord:
        """Keep a new task."""
        row = (
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
        )
        async with self._database.transaction() as connection:
            made = await connection.execute(_INSERT, row)
            if not made.rowcount:
                known = await (await connection.execute(_BY_FLOW, (record.flow,))).fetchone()
                if known is None:
                    raise StoreUnavailable("the task of this flow was removed at this moment")
                return _record(known)
            await _add_entries(connection, record.id, entries)
            await self._dispatch.announce(connection, record)
        self._dispatch.tell(record)
        return record

    async def change(
        self, task_id: str, make: Callable[[TaskRecord], T], entries: Mapping[str, Entry] | None = None
    ) -> tuple[TaskRecord, T] | None:
        """Change a row by a function, while nobody else can."""
        async with self._database.transaction() as connection:
            row = await (await connection.execute(_BY_ID_LOCKED, (task_id,))).fetchone()
            if row is None:
                return None
            record = _record(row)
            before = record.updated
            made = make(record)
            quiet = is_quiet(record, before)
            changed = (
                record.state,
                record.fence,
                record.attempts,
                record.due,
                record.expires,
                encode_record(record),
                task_id,
            )
            await connection.execute(_UPDATE, changed)
            await _add_entries(connection, task_id, entries or {})
            if not quiet:
                await self._dispatch.announce(connection, record)
        if not quiet:
            self._dispatch.tell(record)
        return record, made

    async def append(self, task_id: str, fence: int, entries: Mapping[str, Entry]) -> State | None:
        """Add to a journal."""
        async with self._database.transaction() as connection:
            row = await (await connection.execute(_HELD, (task_id, fence))).fetchone()
            if row is None:
                return None
            if row[1] > 1:
                await connection.execute("UPDATE ekiden_tasks SET attempts = 1 WHERE id = %s", (task_id,))
            await _add_entries(connection, task_id, entries)
        state: State = row[0]
        return state

    async def load(self, task_id: str) -> TaskRecord | None:
        """A row."""
        rows = await self._rows(_BY_ID, (task_id,))
        return _record(rows[0]) if rows else None

    async def entries(self, task_id: str) -> dict[str, Entry]:
        """A journal."""
        rows = await self._rows(
            "SELECT key, entry FROM ekiden_task_entries WHERE task_id = %s ORDER BY number", (task_id,)
        )
        return {key: _unpack(entry) for key, entry in rows}

    async def due(self, audience: str, *, now: float, limit: int) -> list[str]:
        """Tasks that may be claimed."""
        rows = await self._rows(
            "SELECT id FROM ekiden_tasks WHERE audience = %s AND due <= %s ORDER BY due LIMIT %s",
            (audience, now, limit),
        )
        return [task_id for (task_id,) in rows]

    async def next_due(self, audience: str) -> float | None:
        """When the next may be."""
        rows = await self._rows(
            "SELECT min(due) FROM ekiden_tasks WHERE audience = %s AND due IS NOT NULL", (audience,)
        )
        found: float | None = rows[0][0]
        return found

    async def extend(self, held: Mapping[str, int], *, until: float) -> set[str]:
        """Extend leases, in one order for all workers: so they never wait for each other in a circle."""
        still: set[str] = set()
        async with self._database.transaction() as connection:
            for task_id, fence in sorted(held.items()):
                if (await connection.execute(_EXTEND, (until, task_id, fence))).rowcount:
                    still.add(task_id)
        return still

    async def overdue(self, *, now: float, limit: int) -> list[str]:
        """Tasks whose time is over."""
        return [task_id for (task_id,) in await self._rows(_OVERDUE, (now, limit))]

    async def forget(self, *, before: float) -> int:
        """Remove old tasks, and jobs of workers that died."""
        async with self._database.transaction() as connection:
            removed = await connection.execute("DELETE FROM ekiden_tasks WHERE expires < %s", (before,))
        await self._dispatch.clear()
        return removed.rowcount

    async def listing(
        self,
        *,
        audience: str | None = None,
        state: State | None = None,
        after: Place | None = None,
        limit: int = 100,
    ) -> Sequence[TaskRecord]:
        """Tasks, the newest first."""
        created, task_id = after or (None, None)
        wanted = {"audience": audience, "state": state, "created": created, "id": task_id, "limit": limit}
        return [_record(row) for row in await self._rows(_NEWEST, wanted)]

    def watch(self, watcher: Watcher, *, works: bool = False) -> Callable[[], None]:
        """Be told of changes, those of other machines too."""
        return self._dispatch.watch(watcher, works=works)

    async def close(self) -> None:
        """Hear nothing any more."""
        await self._dispatch.close()

    async def _rows(self, query: LiteralString, values: Any) -> list[Any]:
        async with self._database.reading() as connection:
            return await (await connection.execute(query, values)).fetchall()


def _record(row: Any) -> TaskRecord:
    """A row as a record: what has a column of its own may be newer there."""
    record = decode_record(row[0])
    record.state, record.fence, record.attempts, record.due = row[1:5]
    return record


async def _add_entries(connection: Connection, task_id: str, entries: Mapping[str, Entry]) -> None:
    if not entries:
        return
    rows = [(task_id, key, psycopg.Binary(_pack(entry))) for key, entry in entries.items()]
    await connection.cursor().executemany(_ADD, rows)
