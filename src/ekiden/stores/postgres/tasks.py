"""Tasks in Postgres: the same rows as in SQLite, for workers on many machines.

A change is read, decided on here, and written if the row is still the one that was read; else it is read and
decided on again. What many callers want at the same moment is done in one statement.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, LiteralString, TypeAlias, TypeVar

from ekiden.errors import IllegalMove, LostClaim, StoreUnavailable
from ekiden.rounds.journal import Entry
from ekiden.stores.columns import ANY_STATE, RUNNING
from ekiden.stores.keys_of_entries import key_to_bytes
from ekiden.stores.large_rows import LargeRows
from ekiden.stores.postgres import rows
from ekiden.stores.postgres.database import PostgresDatabase
from ekiden.stores.postgres.rows import Append, Write
from ekiden.stores.postgres.signals import PostgresSignals, payloads
from ekiden.stores.postgres.together import Together
from ekiden.stores.story_columns import merged
from ekiden.tasks import moves
from ekiden.tasks.record import TaskRecord, decode_record, encode_record
from ekiden.tasks.states import State
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

__all__ = ["PostgresTasks"]

T = TypeVar("T")
_Seen: TypeAlias = Glance | int
"""A row, or the version of one that is too large to be read beside others."""

_LANES: Final = 2
"""Statements of one kind that one process runs at the same time, where each waits for the disk."""
_SOON: Final = 0.002
"""Seconds before the first retry of a row that another connection was writing."""
_SELDOM: Final = 0.1
"""Seconds between retries at most."""
_MOST_OTHERS: Final = 100
"""Principals behind a flood that are looked for at once; the next look goes on after them."""
_FORGET_AT_ONCE: Final = 1000
_FAR: Final = ("infinity", "")
"""A place after all others, for a list that begins with the newest."""


class _Patience:
    """Bounds the retries of a write that lost against another one."""

    def __init__(self, what: str, seconds: float) -> None:
        self._what = what
        self._deadline = time.monotonic() + seconds
        self._pause = _SOON

    async def wait(self) -> None:
        """Wait before the next try; `StoreUnavailable` when the time is over."""
        if time.monotonic() > self._deadline:
            raise StoreUnavailable(f"{self._what} is being written by others all the time")
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _SELDOM)


class PostgresTasks(TaskStore):
    """Implements the port on a database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._signals = PostgresSignals(database)
        self._inserts: Together[Write, TaskRecord | None] = Together(self._insert_all, lanes=_LANES)
        self._changes: Together[Write, bool] = Together(self._change_all, lanes=_LANES)
        self._appends: Together[Append, State | None] = Together(self._append_all, lanes=_LANES)
        self._loads: Together[str, TaskRecord | None] = Together(self._load_all, lanes=1)
        self._glances: Together[str, _Seen | None] = Together(self._glance_all, lanes=1)
        self._large = LargeRows(self._load_large)
        self._journals: Together[str, dict[str, Entry]] = Together(self._entries_all, lanes=1)
        self._others_from = b""

    # Writing

    async def insert(self, record: TaskRecord, entries: Mapping[str, Entry]) -> TaskRecord:
        """Keep a new task."""
        write, patience = Write(record, entries, Signal(record.id, record.due)), self._patience(record.id)
        while (kept := await self._inserts.do(write, record.flow, write.size)) is None:
            await patience.wait()  # The task of this flow was removed at this moment.
        if kept is record:
            self._signals.tell(record)
        return kept

    async def _insert_all(self, writes: Sequence[Write]) -> list[TaskRecord | None]:
        # In one order for all: so two that insert the same flows never wait for each other in a circle.
        ordered = sorted(writes, key=lambda write: write.record.flow)
        values = {**rows.row_columns(ordered), "news": self._news(writes)}
        made = set((await self._write(rows.INSERT, values))[0][0])
        known: dict[str, TaskRecord] = {}
        if flows := [write.record.flow for write in writes if write.record.id not in made]:
            found = await self._write(rows.BY_FLOW, (flows,))
            known = {row[6]: rows.record_of(row) for row in found}
        return [w.record if w.record.id in made else known.get(w.record.flow) for w in writes]

    async def change(
        self,
        task_id: str,
        make: Callable[[TaskRecord], T],
        entries: Mapping[str, Entry] | None = None,
        known: TaskRecord | None = None,
    ) -> tuple[TaskRecord, T] | None:
        """Change a row by a function."""
        if known is not None:
            try:
                changed = await self._try(decode_record(encode_record(known)), make, entries)
            except (LostClaim, IllegalMove):
                changed = None  # It may be another one by now.
            if changed is not None:
                return changed
        patience = self._patience(task_id)
        while True:
            record = await self.load(task_id)
            if record is None:
                return None
            changed = await self._try(record, make, entries)
            if changed is not None:
                return changed
            await patience.wait()

    async def _try(
        self, record: TaskRecord, make: Callable[[TaskRecord], T], entries: Mapping[str, Entry] | None
    ) -> tuple[TaskRecord, T] | None:
        """One try: None if the row is another one by now, or is being written by somebody else."""
        before = record.updated
        made = make(record)
        signal = None if is_quiet(record, before) else Signal(record.id, record.due)
        write = Write(record, entries or {}, signal)
        if not await self._changes.do(write, record.id, write.size):
            return None
        record.version += 1
        if signal is not None:
            self._signals.tell(record)
        return record, made

    async def _change_all(self, writes: Sequence[Write]) -> list[bool]:
        values = {**rows.row_columns(writes), "news": self._news(writes)}
        changed = set((await self._write(rows.CHANGE, values))[0][0])
        return [write.record.id in changed for write in writes]

    def _news(self, writes: Sequence[Write]) -> list[str]:
        return payloads(self._signals.origin, [w.signal for w in writes if w.signal is not None])

    async def append(self, task_id: str, fence: int, entries: Mapping[str, Entry]) -> State | None:
        """Add to a journal."""
        append, patience = Append(task_id, fence, entries), self._patience(task_id)
        while (state := await self._appends.do(append, task_id, append.size)) is None:
            record = await self.load(task_id)
            if record is None or record.fence != fence or record.state not in RUNNING:
                return None
            await patience.wait()  # Somebody else was writing the row.
        return state

    async def _append_all(self, appends: Sequence[Append]) -> list[State | None]:
        values: dict[str, Any] = {
            "id": [append.task_id for append in appends],
            "fence": [append.fence for append in appends],
            **rows.entry_columns(entry for append in appends for entry in append.entries),
        }
        held: dict[str, State] = dict(await self._write(rows.APPEND, values))
        return [held.get(append.task_id) for append in appends]

    def _patience(self, task_id: str) -> "_Patience":
        return _Patience(f"task {task_id}", self._database.wait_seconds)

    # Reading

    async def load(self, task_id: str) -> TaskRecord | None:
        """A row."""
        return await self._loads.do(task_id)

    async def glance(self, task_id: str) -> Glance | None:
        """A row for the eye. All who look at the same time share it."""
        seen = await self._glances.do(task_id)
        if seen is None or isinstance(seen, Glance):
            return seen
        return await self._large.look(task_id, seen)

    async def _glance_all(self, wanted: Sequence[str]) -> "list[_Seen | None]":
        rows_found = await self._write(rows.SMALL_BY_ID, (list(set(wanted)),))
        found: dict[str, _Seen] = {
            row[6]: row[1] if row[0] is None else Glance(rows.record_of(row)) for row in rows_found
        }
        return [found.get(task_id) for task_id in wanted]

    async def _load_large(self, task_id: str) -> TaskRecord | None:
        found = await self._look(rows.BY_ID, ([task_id],))
        return rows.record_of(found[0]) if found else None

    async def _listed(self, found: Sequence[Sequence[Any]]) -> list[TaskRecord]:
        """Rows of a listing as records, the large ones one after the other."""
        records: list[TaskRecord] = []
        for row in found:
            if row[0] is not None:
                records.append(rows.record_of(row))
            elif (seen := await self._large.look(row[6], row[1])) is not None:
                records.append(seen.record)
        return records

    async def _load_all(self, wanted: Sequence[str]) -> list[TaskRecord | None]:
        found = {row[6]: row for row in await self._write(rows.BY_ID, (list(set(wanted)),))}
        return [rows.record_of(found[task_id]) if task_id in found else None for task_id in wanted]

    async def entries(self, task_id: str) -> dict[str, Entry]:
        """A journal."""
        return await self._journals.do(task_id, task_id)

    async def _entries_all(self, wanted: Sequence[str]) -> list[dict[str, Entry]]:
        found = rows.entries_by_task(await self._write(rows.ENTRIES, (list(wanted),)))
        return [found.get(task_id, {}) for task_id in wanted]

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
        created, task_id = after or _FAR
        values: dict[str, Any] = {
            "audience": audience,
            "principal": None if principal is None else key_to_bytes(principal),
            "state": state,
            "created": created,
            "id": task_id,
            "limit": limit,
        }
        query = rows.NEWEST["all" if principal is None or audience is None else "mine"]
        return await self._listed(await self._look(query, values))

    # What is due

    async def due(self, audience: str, tools: Collection[str], *, now: float, limit: int) -> list[Due]:
        """Tasks that may be claimed."""
        values: dict[str, Any] = {"audience": audience, "tools": list(tools), "now": now, "limit": limit}
        found = [rows.due_of(row) for row in await self._look(rows.DUE, values)]
        if len(found) < limit:
            return found
        values |= {"start": self._others_from, "most": _MOST_OTHERS}
        others = await self._look(rows.OTHERS_DUE, values)
        self._others_from = others[-1][6] + b"\0" if len(others) == _MOST_OTHERS else b""
        among = {each.principal for each in found}
        first = [rows.due_of(row) for row in others if row[0] is not None]
        return [*found, *(each for each in first if each.principal not in among)]

    async def usage(self, audience: str, principal: str) -> Usage:
        """What one principal takes."""
        ((count, size),) = await self._look(rows.USAGE, (audience, key_to_bytes(principal)))
        return Usage(count, int(size))

    async def search(self, query: TaskQuery) -> Sequence[TaskRecord]:
        """Tasks that a query is for."""
        if query.principal is not None:
            return await self._of_principal(query, query.principal)
        if not query.states and not query.tools:
            return await self.listing(after=query.after, limit=query.limit)
        created, task_id = query.after or _FAR
        tools, states = query.tools or await self.tools(), query.states or ANY_STATE
        values = {"tools": list(tools), "states": list(states), "created": created, "id": task_id}
        return await self._listed(await self._look(rows.SEARCH, {**values, "limit": query.limit}))

    async def _of_principal(self, query: TaskQuery, principal: str) -> list[TaskRecord]:
        """All of the principal's are read: the index knows neither their states nor their tools."""
        lists: list[list[TaskRecord]] = []
        for (audience,) in await self._look(rows.AUDIENCES, ()):
            found, after = list[TaskRecord](), query.after
            while len(found) < query.limit and (
                page := await self.listing(audience=audience, principal=principal, after=after, limit=500)
            ):
                found.extend(record for record in page if query.fits(record))
                after = (page[-1].created, page[-1].id)
            lists.append(found)
        return merged(lists, lambda record: (record.created, record.id), query.limit)

    async def tools(self) -> list[str]:
        """One look at the index for each."""
        return [tool for (tool,) in await self._look(rows.TOOLS, ())]

    async def next_due(self, audience: str, tools: Collection[str]) -> float | None:
        """When the next may be."""
        found = await self._look(rows.NEXT_DUE, {"audience": audience, "tools": list(tools)})
        due: float | None = found[0][0]
        return due

    async def claim_all(self, task_ids: Sequence[str], *, now: float, lease: float) -> list[Held]:
        """Try to claim several at once."""
        return await self._database.to_its_end(self._claim_all(task_ids, now, lease)) if task_ids else []

    async def _claim_all(self, task_ids: Sequence[str], now: float, lease: float) -> list[Held]:
        writes: list[Write] = []
        for row in await self._write(rows.BY_ID, (list(task_ids),)):
            record = rows.record_of(row)
            try:
                moves.claim(record, now=now, lease=lease)
            except (LostClaim, IllegalMove):
                continue
            writes.append(Write(record, {}, None))
        had = [
            write.record for write, ours in zip(writes, await self._change_all(writes), strict=True) if ours
        ]
        journals = rows.entries_by_task(await self._write(rows.ENTRIES, ([record.id for record in had],)))
        for record in had:
            record.version += 1
        return [Held(record, journals.get(record.id, {})) for record in had]

    async def extend(self, held: Mapping[str, int], *, until: float) -> set[str]:
        """Extend leases, on a connection that is reserved for that."""
        still: set[str] = set()
        missing: dict[str, int] = dict(held)
        patience = self._patience("that is held")
        while True:
            still |= set(await self._database.to_its_end(self._renew(rows.EXTEND, missing, until)))
            missing = {task_id: held[task_id] for task_id in missing if task_id not in still}
            if missing:  # Those are lost, or somebody else was writing them.
                mine = await self._database.to_its_end(self._renew(rows.HELD, missing, until))
                missing = {task_id: held[task_id] for task_id in mine}
            if not missing:
                return still
            await patience.wait()

    async def _renew(self, query: LiteralString, held: Mapping[str, int], until: float) -> list[str]:
        values = {"id": list(held), "fence": list(held.values()), "until": until}
        async with self._database.renewing() as connection:
            return [row[0] for row in await (await connection.execute(query, values)).fetchall()]

    # Cleaning up

    async def overdue(self, *, now: float, limit: int) -> list[str]:
        """Tasks whose time is over."""
        return [task_id for (task_id,) in await self._look(rows.OVERDUE, (now, limit))]

    async def forget(self, *, before: float, audience: str | None = None) -> int:
        """Remove old tasks, some at a time."""
        removed = 0
        while True:
            count = await self._database.to_its_end(self._forget(before, audience))
            removed += count
            if count < _FORGET_AT_ONCE:
                return removed

    async def _forget(self, before: float, audience: str | None) -> int:
        abandoned = before - ABANDONED_SECONDS
        values = {"before": before, "audience": audience, "abandoned": abandoned, "limit": _FORGET_AT_ONCE}
        async with self._database.reading() as connection:
            return (await connection.execute(rows.FORGET, values)).rowcount

    # Hearing of changes

    def watch(self, watcher: Watcher, *, works: bool = False) -> Callable[[], None]:
        """Be told of changes, those of other machines too."""
        return self._signals.watch(watcher)

    async def close(self) -> None:
        """Stop listening, and wait for the statements that run."""
        await self._signals.close()
        for together in (self._inserts, self._changes, self._appends, self._loads, self._journals):
            await together.settle()

    # Statements

    async def _write(self, query: LiteralString, values: Any) -> list[Any]:
        """One statement on the connections of tasks. The caller must not be cancelled meanwhile."""
        async with self._database.writing() as connection:
            return await (await connection.execute(query, values)).fetchall()

    async def _look(self, query: LiteralString, values: Any) -> list[Any]:
        """One statement that may be slow, on the connections of everybody."""
        return await self._database.to_its_end(self._read(query, values))

    async def _read(self, query: LiteralString, values: Any) -> list[Any]:
        async with self._database.reading() as connection:
            return await (await connection.execute(query, values)).fetchall()
