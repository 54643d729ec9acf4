"""Tasks whose rows and journals are sealed."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from ekiden.errors import IllegalMove, LostClaim, StoreRefused, StoreUnavailable
from ekiden.rounds.journal import Entry
from ekiden.server.sealing.seal import Seal, is_sealed
from ekiden.tasks.outcomes import EXPIRED, WHY_EXPIRED
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.states import State
from ekiden.tasks.store import Due, Glance, Held, Place, TaskQuery, TaskStore, Usage, Watcher

__all__ = ["SealedTasks"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_NOT_OURS_SECONDS: Final = 60.0
"""How long a task rests that a worker could not open."""
_GIVEN_UP_SECONDS: Final = 3600.0
"""How long after its time a worker with the key may still come to clean up after it."""

_STEPS: Final = "steps of a task"
_TASK: Final = "task"


class _Secrets(msgspec.Struct, array_like=True):
    """What of a task's row is sealed."""

    arguments: dict[str, Any]
    meta: dict[str, Any]
    message: str | None
    questions: dict[str, Question]
    result: bytes | None
    error: bytes | None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Secrets).decode


def _place(record: TaskRecord) -> tuple[str, ...]:
    """Where the secrets of a task belong: to its id, and to who called what. None of it ever changes."""
    return _TASK, record.id, record.flow, record.answers, record.audience, record.tool, record.principal


class SealedTasks(TaskStore):
    """Implements the port of tasks around another store of tasks."""

    def __init__(self, inner: TaskStore, seal: Seal) -> None:
        self._inner = inner
        self._seal = seal
        self._glances = WeakValueDictionary[int, Glance]()
        """Rows that somebody looks at now, by the identity of what the store keeps."""

    # Rows

    def _sealed(self, record: TaskRecord) -> TaskRecord:
        return self._hide(msgspec.structs.replace(record), record)

    def _hide(self, kept: TaskRecord, record: TaskRecord) -> TaskRecord:
        """Make `kept` what the store gets of a record."""
        for name in record.__struct_fields__:
            setattr(kept, name, getattr(record, name))
        secrets = _Secrets(*(getattr(record, name) for name in _Secrets.__struct_fields__))
        kept.arguments = {**self._seal.seal_value(_encode(secrets), *_place(record))}
        kept.meta, kept.message, kept.questions = {}, None, {}
        kept.result = kept.error = None
        return kept

    def _opened(self, kept: TaskRecord, task_id: str) -> TaskRecord:
        if kept.id != task_id:
            raise StoreRefused("the store holds the record of another task here")
        if not is_sealed(kept.arguments):
            return kept
        secrets = _decode(self._seal.open_value(kept.arguments, *_place(kept)))
        found = {name: getattr(secrets, name) for name in _Secrets.__struct_fields__}
        # What lies in the clear beside what is sealed was written later, by who has no key: an operator who
        # cancelled the task, or a worker that found it expired.
        later = {"message": kept.message, "error": kept.error}
        return msgspec.structs.replace(
            kept, **{**found, **{name: value for name, value in later.items() if value is not None}}
        )

    # Writing

    async def insert(self, record: TaskRecord, entries: Mapping[str, Entry]) -> TaskRecord:
        """Keep a new task."""
        sealed = self._seal.seal_entries(entries, _STEPS, record.id)
        kept = await self._inner.insert(self._sealed(record), sealed)
        if kept.id == record.id:
            return record
        if kept.flow != record.flow:
            raise StoreRefused("the store holds the record of another call here")
        return self._opened(kept, kept.id)

    async def change(
        self,
        task_id: str,
        make: Callable[[TaskRecord], T],
        entries: Mapping[str, Entry] | None = None,
        known: TaskRecord | None = None,
    ) -> tuple[TaskRecord, T] | None:
        """Change a row by a function."""

        def make_sealed(kept: TaskRecord) -> T:
            record = self._opened(kept, task_id)
            made = make(record)
            self._hide(kept, record)
            return made

        sealed = self._seal.seal_entries(entries or {}, _STEPS, task_id)
        changed = await self._inner.change(
            task_id, make_sealed, sealed, None if known is None else self._sealed(known)
        )
        return None if changed is None else (self._opened(changed[0], task_id), changed[1])

    async def append(self, task_id: str, fence: int, entries: Mapping[str, Entry]) -> State | None:
        """Add to a journal."""
        return await self._inner.append(task_id, fence, self._seal.seal_entries(entries, _STEPS, task_id))

    async def claim_all(self, task_ids: Sequence[str], *, now: float, lease: float) -> list[Held]:
        """Try to claim several at once. What cannot be opened is put back, for a worker that has its key."""
        opened: list[Held] = []
        for held in await self._inner.claim_all(task_ids, now=now, lease=lease):
            task_id = held.record.id
            try:
                entries = self._seal.open_entries(held.entries, _STEPS, task_id)
                opened.append(Held(self._opened(held.record, task_id), entries))
            except StoreRefused as problem:
                _log.error("Task %s cannot be run here: %s", task_id, problem)
                await self._put_back(held, now)
        return opened

    async def _put_back(self, held: Held, now: float) -> None:
        """Let a task rest. Whatever goes wrong: its lease lapses, and others were claimed with it."""
        record, until = held.record, now + _NOT_OURS_SECONDS
        task_id = record.id
        try:
            if record.expires is not None and now > record.expires + _GIVEN_UP_SECONDS:
                await self._inner.expire([task_id], EXPIRED, now=now, message=WHY_EXPIRED)
                await self._inner.tidied(task_id, held.fence)
            elif record.state == "running":
                await self._inner.release(task_id, held.fence, now=now, after=_NOT_OURS_SECONDS)
            else:  # What is to be cleaned up cannot be released.
                await self._inner.extend({task_id: held.fence}, until=until)
        except (LostClaim, IllegalMove, StoreUnavailable) as problem:
            _log.info("Task %s was not put back: %s", task_id, problem)

    async def expire(
        self,
        task_ids: Iterable[str],
        error: bytes,
        *,
        now: float,
        message: str,
    ) -> list[TaskRecord]:
        """Fail tasks whose time is over, also those that cannot be opened: nobody else might come."""
        expire = super().expire

        async def expire_one(task_id: str) -> list[TaskRecord]:
            try:
                return await expire([task_id], error, now=now, message=message)
            except StoreRefused:
                return await self._inner.expire([task_id], error, now=now, message=message)

        return [record for found in await asyncio.gather(*map(expire_one, task_ids)) for record in found]

    async def extend(self, held: Mapping[str, int], *, until: float) -> set[str]:
        """Extend leases."""
        return await self._inner.extend(held, until=until)

    async def forget(self, *, before: float, audience: str | None = None) -> int:
        """Remove old tasks."""
        return await self._inner.forget(before=before, audience=audience)

    # Reading

    async def load(self, task_id: str) -> TaskRecord | None:
        """A row."""
        kept = await self._inner.load(task_id)
        return None if kept is None else self._opened(kept, task_id)

    async def glance(self, task_id: str) -> Glance | None:
        """A row to read. It is opened once for all who look at the same row of the store."""
        kept = await self._inner.glance(task_id)
        if kept is None:
            return None
        seen = self._glances.get(id(kept))
        if seen is None:  # It holds `kept`, so that no other row has that id meanwhile.
            seen = Glance(self._opened(kept.record, task_id), kept=kept)
            self._glances[id(kept)] = seen
        return seen

    async def entries(self, task_id: str) -> dict[str, Entry]:
        """A journal."""
        return self._seal.open_entries(await self._inner.entries(task_id), _STEPS, task_id)

    async def due(self, audience: str, tools: Collection[str], *, now: float, limit: int) -> list[Due]:
        """Tasks that may be claimed."""
        return await self._inner.due(audience, tools, now=now, limit=limit)

    async def usage(self, audience: str, principal: str) -> Usage:
        """What one principal takes."""
        return await self._inner.usage(audience, principal)

    async def next_due(self, audience: str, tools: Collection[str]) -> float | None:
        """When the next may be."""
        return await self._inner.next_due(audience, tools)

    async def overdue(self, *, now: float, limit: int) -> list[str]:
        """Tasks whose time is over."""
        return await self._inner.overdue(now=now, limit=limit)

    async def listing(
        self,
        *,
        audience: str | None = None,
        principal: str | None = None,
        state: State | None = None,
        after: Place | None = None,
        limit: int = 100,
    ) -> Sequence[TaskRecord]:
        """Tasks, the newest first. What cannot be opened, or is not what was asked for, is left out."""
        shown: list[TaskRecord] = []
        while (missing := limit - len(shown)) > 0:
            found = await self._inner.listing(
                audience=audience, principal=principal, state=state, after=after, limit=missing
            )
            shown += [
                record
                for record in map(self._readable, found)
                if record is not None
                and audience in (None, record.audience)
                and principal in (None, record.principal)
            ]
            if len(found) < missing or not _goes_on(after, last := (found[-1].created, found[-1].id)):
                break
            after = last
        return shown

    async def search(self, query: TaskQuery) -> Sequence[TaskRecord]:
        """Tasks that a query is for. What cannot be opened is left out."""
        found = map(self._readable, await self._inner.search(query))
        return [record for record in found if record is not None]

    async def tools(self) -> list[str]:
        """The tools of all tasks."""
        return await self._inner.tools()

    def _readable(self, kept: TaskRecord) -> TaskRecord | None:
        try:
            return self._opened(kept, kept.id)
        except StoreRefused as problem:
            _log.warning("Task %s is left out of a list: %s", kept.id, problem)
            return None

    # Watching

    def watch(self, watcher: Watcher, *, works: bool = False) -> Callable[[], None]:
        """Be told of changes."""
        return self._inner.watch(watcher, works=works)

    async def check(self) -> None:
        """Look into the store."""
        await self._inner.check()


def _goes_on(before: Place | None, place: Place) -> bool:
    """Whether a list goes on behind a place: one that was changed could lead it round in a circle."""
    return before is None or place < before
