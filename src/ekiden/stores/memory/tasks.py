"""Tasks in memory: for tests, and for servers whose tasks may die with them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from ekiden.bus.listeners import Listeners
from ekiden.rounds.journal import Entry
from ekiden.stores.columns import LEASED, RUNNING, due_of
from ekiden.tasks.record import TaskRecord, decode_record, encode_record
from ekiden.tasks.states import FINAL, State
from ekiden.tasks.store import ABANDONED_SECONDS, Due, Place, Signal, TaskStore, Usage, Watcher

__all__ = ["MemoryTasks"]

T = TypeVar("T")

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Entry).decode


class MemoryTasks(TaskStore):
    """Keeps records as bytes, so that two callers never share one object."""

    def __init__(self) -> None:
        self._rows: dict[str, bytes] = {}
        self._flows: dict[str, str] = {}
        self._journals: dict[str, dict[str, bytes]] = {}
        self._due: dict[str, tuple[str, str, float]] = {}
        """The audience, the tool and the due time of tasks that have one."""
        self._whose: dict[str, tuple[str, str, bool]] = {}
        """The audience and the principal of every task, and whether it has ended."""
        self._expires: dict[str, float] = {}
        self._watchers = Listeners[Signal]()

    def _save(self, record: TaskRecord, entries: Mapping[str, Entry] | None) -> None:
        self._rows[record.id] = encode_record(record)
        self._whose[record.id] = (record.audience, record.principal, record.final)
        self._add(record.id, entries or {})
        if record.expires is not None:
            self._expires[record.id] = record.expires
        if record.due is None:
            self._due.pop(record.id, None)
        else:
            self._due[record.id] = (record.audience, record.tool, record.due)
        self._watchers.tell(Signal(record.id, record.due))

    async def insert(self, record: TaskRecord, entries: Mapping[str, Entry]) -> TaskRecord:
        """Keep a new task."""
        if (known := self._flows.get(record.flow)) is not None:
            return decode_record(self._rows[known])
        self._flows[record.flow] = record.id
        self._save(record, entries)
        return record

    async def change(
        self,
        task_id: str,
        make: Callable[[TaskRecord], T],
        entries: Mapping[str, Entry] | None = None,
        known: TaskRecord | None = None,
    ) -> tuple[TaskRecord, T] | None:
        """Change a row by a function."""
        if (row := self._rows.get(task_id)) is None:
            return None
        record = decode_record(row)
        made = make(record)
        self._save(record, entries)
        return record, made

    async def append(self, task_id: str, fence: int, entries: Mapping[str, Entry]) -> State | None:
        """Add to a journal."""
        row = self._rows.get(task_id)
        record = None if row is None else decode_record(row)
        if record is None or record.fence != fence or record.state not in RUNNING:
            return None
        if record.losses:
            record.losses = 0
            self._rows[task_id] = encode_record(record)
        self._add(task_id, entries)
        return record.state

    def _add(self, task_id: str, entries: Mapping[str, Entry]) -> None:
        journal = self._journals.setdefault(task_id, {})
        for key, entry in entries.items():
            journal.pop(key, None)  # What is added again comes after all that was there.
            journal[key] = _pack(entry)

    async def load(self, task_id: str) -> TaskRecord | None:
        """A row."""
        row = self._rows.get(task_id)
        return None if row is None else decode_record(row)

    async def entries(self, task_id: str) -> dict[str, Entry]:
        """A journal."""
        return {key: _unpack(entry) for key, entry in self._journals.get(task_id, {}).items()}

    async def due(self, audience: str, tools: Collection[str], *, now: float, limit: int) -> list[Due]:
        """Tasks that may be claimed."""
        ready = [
            (due, task_id)
            for task_id, (whose, tool, due) in self._due.items()
            if whose == audience and tool in tools and due <= now
        ]
        found = [due_of(decode_record(self._rows[task_id])) for _, task_id in sorted(ready)]
        first: dict[str, Due] = {}
        for each in found[limit:]:
            first.setdefault(each.principal, each)
        among = {each.principal for each in found[:limit]}
        return [*found[:limit], *(each for each in first.values() if each.principal not in among)]

    async def usage(self, audience: str, principal: str) -> Usage:
        """What one principal takes."""
        is_open: dict[str, bool] = {}
        for task_id, (of_audience, of_principal, has_ended) in self._whose.items():
            if (of_audience, of_principal) == (audience, principal):
                is_open[task_id] = not has_ended
        return Usage(sum(is_open.values()), sum(len(self._rows[task_id]) for task_id in is_open))

    async def next_due(self, audience: str, tools: Collection[str]) -> float | None:
        """When the next may be."""
        times = (due for whose, tool, due in self._due.values() if whose == audience and tool in tools)
        return min(times, default=None)

    async def extend(self, held: Mapping[str, int], *, until: float) -> set[str]:
        """Extend leases."""
        still: set[str] = set()
        for task_id, fence in held.items():
            record = await self.load(task_id)
            if record is not None and record.fence == fence and record.state in LEASED:
                record.due = until
                self._rows[task_id] = encode_record(record)
                self._due[task_id] = (record.audience, record.tool, until)
                still.add(task_id)
        return still

    async def overdue(self, *, now: float, limit: int) -> list[str]:
        """Tasks whose time is over."""
        late = (task_id for task_id, expires in self._expires.items() if expires <= now)
        records = [decode_record(self._rows[task_id]) for task_id in late]
        return [record.id for record in records if not record.final][:limit]

    async def forget(self, *, before: float, audience: str | None = None) -> int:
        """Remove old tasks."""
        late = {task_id: expires for task_id, expires in self._expires.items() if expires < before}
        found = {task_id: decode_record(self._rows[task_id]) for task_id in late}
        old = [
            record
            for task_id, record in found.items()
            if (record.state in FINAL and audience in (None, record.audience))
            or late[task_id] < before - ABANDONED_SECONDS
        ]
        for record in old:
            del self._rows[record.id], self._expires[record.id]
            self._journals.pop(record.id, None)
            self._due.pop(record.id, None)
            self._whose.pop(record.id, None)
            self._flows.pop(record.flow, None)
        return len(old)

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
        records = [decode_record(row) for row in self._rows.values()]
        wanted = [r for r in records if audience in (None, r.audience) and state in (None, r.state)]
        mine = [r for r in wanted if principal in (None, r.principal)]
        places = {(record.created, record.id): record for record in mine}
        return [places[at] for at in sorted(places, reverse=True) if after is None or at < after][:limit]

    def watch(self, watcher: Watcher, *, works: bool = False) -> Callable[[], None]:
        """Be told of changes."""
        return self._watchers.add(watcher)
