"""Tasks in one SQLite file: rows with what is searched for in columns of its own, journals beside them.

What may take long is read in a thread: journals, lists, the search for what is due, and rows that are large.
"""

import asyncio
import functools
import math
import operator
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ekiden.bus.listeners import Listeners
from ekiden.errors import IllegalMove, LostClaim, StoreUnavailable
from ekiden.rounds.journal import Entry
from ekiden.stores.columns import ANY_STATE, ROW, RUNNING, live_values, read_row
from ekiden.stores.large_rows import SMALL, LargeRows
from ekiden.stores.sqlite import statements as sql
from ekiden.stores.sqlite.due import FairSearch
from ekiden.stores.sqlite.file import STALE_PART, SQLiteFile
from ekiden.stores.sqlite.wake import WakeSocket
from ekiden.stores.story_columns import merged
from ekiden.tasks import moves
from ekiden.tasks.record import TaskRecord, encode_record
from ekiden.tasks.states import FINAL, State
from ekiden.tasks.store import (
    ABANDONED_SECONDS,
    Due,
    Glance,
    Held,
    Place,
    Signal,
    TaskQuery,
    TaskStore,
    Usage,
    Watcher,
    is_quiet,
)
from ekiden.wire.json import decode, encode

__all__ = ["SQLiteTasks"]

T = TypeVar("T")

_REMEMBERED: Final = 512
_REMEMBERED_BYTES: Final = 4 * 1024
"""Rows that are kept as they were decoded for the next look, and how large each may be: 2 MiB in all."""

_PLACES: Final = 4096
"""Tasks whose place in the file is kept for the next look: 1 MiB. To find it in a large file takes as long
as to read the row."""

_FORGET_SECONDS: Final = 0.02
"""How long tasks are removed in one transaction: others wait for it."""
_FORGET_ROWS: Final = 500

_row_values = operator.attrgetter(*ROW)
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Entry).decode


class SQLiteTasks(TaskStore):
    """Implements the port on a file."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._watchers = Listeners[Signal]()
        self._wake = None if file.in_memory else WakeSocket(file.path)
        self._search = FairSearch()
        self._large = LargeRows(self._load_large)
        self._places: dict[str, int] = {}
        """Where rows were that were looked at, by task."""

    def _tell(self, record: TaskRecord) -> None:
        signal = Signal(record.id, record.due)
        self._watchers.tell(signal)
        if self._wake is not None:
            self._wake.tell(signal)

    # Writing

    async def insert(self, record: TaskRecord, entries: Mapping[str, Entry]) -> TaskRecord:
        """Keep a new task."""
        journal = _packed(record.id, entries)
        data = encode_record(record)
        row = (*_row_values(record), data)

        def work(connection: sqlite3.Connection) -> TaskRecord:
            if connection.execute(sql.INSERT, row).rowcount == 0:
                return _record(connection.execute(sql.BY_FLOW, (record.flow,)).fetchone())
            _add(connection, journal)
            return record

        kept = await self._file.write(work, size=len(data) + _size(journal))
        if kept is record:
            self._tell(record)
        return kept

    async def change(
        self,
        task_id: str,
        make: Callable[[TaskRecord], T],
        entries: Mapping[str, Entry] | None = None,
        known: TaskRecord | None = None,
    ) -> tuple[TaskRecord, T] | None:
        """Change a row by a function."""
        journal = _packed(task_id, entries or {})

        def work(connection: sqlite3.Connection) -> tuple[TaskRecord, T, bool] | None:
            row = connection.execute(sql.BY_ID, (task_id,)).fetchone()
            if row is None:
                return None
            record = _record(row)
            updated = record.updated
            made = make(record)
            connection.execute(sql.CHANGE, (*live_values(record), encode_record(record), task_id))
            _add(connection, journal)
            return record, made, is_quiet(record, updated)

        changed = await self._file.write(work, size=_size(journal))
        if changed is None:
            return None
        record, made, quiet = changed
        if not quiet:
            self._tell(record)
        return record, made

    async def claim(self, task_id: str, *, now: float, lease: float) -> Held | None:
        """Try to claim a task."""
        claimed = await self.claim_all((task_id,), now=now, lease=lease)
        return claimed[0] if claimed else None

    async def claim_all(self, task_ids: Sequence[str], *, now: float, lease: float) -> list[Held]:
        """Try to claim several, in one transaction that reads their journals too."""
        in_time = time.monotonic() + lease * STALE_PART

        def work(connection: sqlite3.Connection) -> list[tuple[Held, bool]]:
            if time.monotonic() > in_time and any(_is_held(connection, task_id) for task_id in task_ids):
                raise StoreUnavailable("the store was locked for so long that no worker could keep its tasks")
            tries = (_claim(connection, task_id, now, lease) for task_id in task_ids)
            return [claimed for claimed in tries if claimed is not None]

        claimed = await self._file.write(work)
        for held, quiet in claimed:
            if not quiet:
                self._tell(held.record)
        return [held for held, _ in claimed]

    async def append(self, task_id: str, fence: int, entries: Mapping[str, Entry]) -> State | None:
        """Add to a journal."""
        journal = _packed(task_id, entries)

        def work(connection: sqlite3.Connection) -> State | None:
            row = connection.execute(sql.HELD, (task_id, fence)).fetchone()
            if row is None:
                return None
            if row[1]:
                connection.execute(sql.PROGRESS, (task_id,))
            _add(connection, journal)
            state: State = row[0]
            return state

        return await self._file.write(work, size=_size(journal))

    async def extend(self, held: Mapping[str, int], *, until: float) -> set[str]:
        """Extend leases."""

        def work(connection: sqlite3.Connection) -> set[str]:
            connection.execute(sql.EXTEND, (until, wanted))
            return set(decode(connection.execute(sql.EXTENDED, (wanted,)).fetchone()[0].encode()))

        wanted = encode(list(held.items())).decode()
        return await self._file.write(work)

    async def forget(self, *, before: float, audience: str | None = None) -> int:
        """Remove old tasks, some at a time, until none is left; others write in between."""
        forgotten, abandoned = 0, before - ABANDONED_SECONDS
        values = {"before": before, "audience": audience, "abandoned": abandoned, "limit": _FORGET_ROWS}
        while old := await self._ids(sql.OLD, values):
            forgotten += await self._file.write(functools.partial(_forget, old))
            await asyncio.sleep(_FORGET_SECONDS)  # Other processes want to write, too.
        return forgotten

    # Reading

    async def load(self, task_id: str) -> TaskRecord | None:
        """A row."""
        row = await self._file.read(functools.partial(self._small_row, task_id))
        if row is not None and row[0] is None:
            return await self._load_large(task_id)
        return None if row is None else _record(row)

    async def _load_large(self, task_id: str) -> TaskRecord | None:
        return await self._file.scan(lambda connection: _load(connection, task_id))

    async def glance(self, task_id: str) -> Glance | None:
        """A row for the eye: clients look often, and mostly nothing has changed."""
        row = await self._file.read(functools.partial(self._small_row, task_id))
        if row is None:
            return None
        if row[0] is None:
            state, fence, *_ = row[1:]
            # A row that has ended does not change any more.
            return await self._large.look(task_id, fence if state in FINAL else object())
        return _glance(row) if len(row[0]) <= _REMEMBERED_BYTES else Glance(_record(row))

    def _small_row(self, task_id: str, connection: sqlite3.Connection) -> Any:
        """The row, from where it was last time, or found by its id."""
        place, row = self._places.get(task_id), None
        if place is not None:
            row = connection.execute(sql.SMALL_BY_PLACE, (SMALL, place, task_id)).fetchone()
        if row is None:
            row = connection.execute(sql.SMALL_BY_ID, (SMALL, task_id)).fetchone()
            if row is None:
                return None
            if len(self._places) >= _PLACES:
                del self._places[next(iter(self._places))]
            self._places[task_id] = row[-1]
        return row[:-1]

    async def entries(self, task_id: str) -> dict[str, Entry]:
        """A journal."""
        return await self._file.scan(lambda connection: _entries(connection, task_id))

    async def due(self, audience: str, tools: Collection[str], *, now: float, limit: int) -> list[Due]:
        """Tasks that may be claimed."""
        return await self._file.scan(
            lambda connection: self._search.due(connection, audience, tools, now=now, limit=limit)
        )

    async def usage(self, audience: str, principal: str) -> Usage:
        """What one principal takes."""
        return await self._file.scan(
            lambda connection: Usage(*connection.execute(sql.USAGE, (audience, principal)).fetchone())
        )

    async def next_due(self, audience: str, tools: Collection[str]) -> float | None:
        """When the next may be."""

        def work(connection: sqlite3.Connection) -> float | None:
            rows = (connection.execute(sql.NEXT_DUE, (audience, tool)).fetchone() for tool in tools)
            return min((row[0] for row in rows if row is not None), default=None)

        return await self._file.scan(work)

    async def overdue(self, *, now: float, limit: int) -> list[str]:
        """Tasks whose time is over."""
        return await self._ids(sql.OVERDUE, (now, limit))

    async def listing(
        self,
        *,
        audience: str | None = None,
        principal: str | None = None,
        state: State | None = None,
        after: Place | None = None,
        limit: int = 100,
    ) -> Sequence[TaskRecord]:
        """Tasks, the newest first."""
        query, values = sql.newest(audience, principal, state, after, limit)
        return await self._file.scan(
            lambda connection: [_record(row) for row in connection.execute(query, values)]
        )

    async def search(self, query: TaskQuery) -> Sequence[TaskRecord]:
        """Tasks that a query is for: some searches of an index each, whose results become one list."""
        if not query.states and not query.tools and query.principal is None:
            return await self.listing(after=query.after, limit=query.limit)
        return await self._file.scan(lambda connection: _search(connection, query))

    async def tools(self) -> list[str]:
        """One look at the index for each."""
        return await self._file.scan(lambda connection: _distinct(connection, sql.NEXT_TOOL))

    async def _ids(self, query: str, values: Any) -> list[str]:
        return await self._file.scan(lambda connection: [row[0] for row in connection.execute(query, values)])

    # Watching

    def watch(self, watcher: Watcher, *, works: bool = False) -> Callable[[], None]:
        """Be told of changes, those of other processes too."""
        remove = self._watchers.add(watcher)
        if self._wake is not None:
            self._wake.listen(self._watchers.tell)

        def end() -> None:
            remove()
            if not self._watchers and self._wake is not None:
                self._wake.stop_listening()

        return end

    def close(self) -> None:
        """Give the sockets back."""
        if self._wake is not None:
            self._wake.close()


def _record(row: Any) -> TaskRecord:
    return read_row(row[0], row[1:])


@functools.lru_cache(_REMEMBERED)
def _glance(row: tuple[Any, ...]) -> Glance:
    return Glance(_record(row))


def _load(connection: sqlite3.Connection, task_id: str) -> TaskRecord | None:
    row = connection.execute(sql.BY_ID, (task_id,)).fetchone()
    return None if row is None else _record(row)


def _entries(connection: sqlite3.Connection, task_id: str) -> dict[str, Entry]:
    return {key: _unpack(entry) for key, entry in connection.execute(sql.ENTRIES, (task_id,))}


def _packed(task_id: str, entries: Mapping[str, Entry]) -> list[tuple[str, str, bytes]]:
    return [(task_id, key, _pack(entry)) for key, entry in entries.items()]


def _size(journal: list[tuple[str, str, bytes]]) -> int:
    return sum(len(entry) for _, _, entry in journal)


def _add(connection: sqlite3.Connection, journal: list[tuple[str, str, bytes]]) -> None:
    for row in journal:
        connection.execute(sql.ADD_ENTRY, row)


def _distinct(connection: sqlite3.Connection, next_one: str) -> list[str]:
    """The values of an indexed column, in order. An empty one is left out."""
    found, last = list[str](), ""
    while (value := connection.execute(next_one, (last,)).fetchone()[0]) is not None:
        found.append(value)
        last = value
    return found


def _search(connection: sqlite3.Connection, query: TaskQuery) -> list[TaskRecord]:
    page = (*(query.after or (math.inf, "")), query.limit)
    if query.principal is None:
        tools = query.tools or _distinct(connection, sql.NEXT_TOOL)
        wanted = [(tool, state) for tool in tools for state in query.states or ANY_STATE]
        lists = [connection.execute(sql.OF_TOOL, (*each, *page)).fetchall() for each in wanted]
    else:
        # All of the principal's are read: the index knows neither their states nor their tools.
        whose = [(audience, query.principal) for audience in _distinct(connection, sql.NEXT_AUDIENCE)]
        lists = [connection.execute(sql.OF_PRINCIPAL, (*each, *page[:2], -1)).fetchall() for each in whose]
    records = [[record for row in rows if query.fits(record := _record(row))] for rows in lists]
    return merged(records, lambda record: (record.created, record.id), query.limit)


def _is_held(connection: sqlite3.Connection, task_id: str) -> bool:
    record = _load(connection, task_id)
    return record is not None and record.state in RUNNING


def _claim(
    connection: sqlite3.Connection, task_id: str, now: float, lease: float
) -> tuple[Held, bool] | None:
    record = _load(connection, task_id)
    if record is None:
        return None
    updated = record.updated
    try:
        moves.claim(record, now=now, lease=lease)
    except (LostClaim, IllegalMove):
        return None
    if record.updated == updated:
        connection.execute(sql.CLAIM, (*live_values(record), task_id))  # The rest is as it was.
    else:
        connection.execute(sql.CHANGE, (*live_values(record), encode_record(record), task_id))
    return Held(record, _entries(connection, task_id)), is_quiet(record, updated)


def _forget(task_ids: list[str], connection: sqlite3.Connection) -> int:
    """Remove tasks with their journals until the time is over; how many."""
    deadline, forgotten = time.monotonic() + _FORGET_SECONDS, 0
    for task_id in task_ids:
        connection.execute(sql.FORGET_ENTRIES, (task_id,))
        forgotten += connection.execute(sql.FORGET, (task_id,)).rowcount
        if time.monotonic() > deadline:
            break
    return forgotten
