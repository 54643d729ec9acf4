"""A store whose contents are sealed with the server's keys: whoever reads the database reads no secrets.

Sealed are arguments, questions, answers, results, errors, messages, and the values of steps. In the clear
stays what a store needs to find and order rows: ids, the names of tools, principals, states and times, the
names or `key=`s of steps, and fingerprints. What is sealed belongs to its row: it opens nowhere else. Rows
that were written before this was turned on are read as they are.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ekiden.errors import StoreRefused
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Busy, Claim, Claimed, Known, Recorded
from ekiden.server.sealing.keys import KeyRing
from ekiden.stores.store import Store
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.states import State
from ekiden.tasks.store import Due, Held, Place, TaskStore, Watcher
from ekiden.wire.json import is_object

__all__ = ["SealedStore"]

T = TypeVar("T")

_log = logging.getLogger("ekiden.tasks")

_NOT_OURS_SECONDS: Final = 60.0
"""How long a task rests that a worker could not open."""

_MARK: Final = "ekiden/sealed"
"""The only key of a value that is sealed."""


class _Secrets(msgspec.Struct, array_like=True):
    """What of a task's row is sealed."""

    arguments: dict[str, Any]
    meta: dict[str, Any]
    message: str | None
    questions: dict[str, Question]
    result: bytes | None
    error: bytes | None


_encode: Final = msgspec.msgpack.Encoder().encode
_secrets: Final = msgspec.msgpack.Decoder(_Secrets)
_spoken: Final = msgspec.msgpack.Decoder(tuple[Any, str])


class _Seal:
    """Seals and opens bytes for one row each."""

    def __init__(self, keys: Callable[[], KeyRing]) -> None:
        self._keys = keys

    def seal(self, data: bytes, row: str) -> bytes:
        return self._keys().seal_at_rest(data, row.encode("utf-8", "surrogatepass"))

    def open(self, sealed: bytes, row: str) -> bytes:
        data = self._keys().open_at_rest(sealed, row.encode("utf-8", "surrogatepass"))
        if data is None:
            raise StoreRefused(
                "what the store holds was sealed with a key that this server does not have, or was changed"
            )
        return data

    def seal_entries(self, row: str, entries: Mapping[str, Entry]) -> dict[str, Entry]:
        """Entries whose values, and what they say of arguments, are sealed."""
        return {key: self._sealed_entry(f"{row}/{key}", entry) for key, entry in entries.items()}

    def _sealed_entry(self, row: str, entry: Entry) -> Entry:
        sealed = self.seal(_encode((entry.value, entry.about)), row)
        return Entry(entry.kind, entry.digest, {_MARK: sealed}, entry.branch)

    def open_entries(self, row: str, entries: Mapping[str, Entry]) -> dict[str, Entry]:
        return {key: self._opened_entry(f"{row}/{key}", entry) for key, entry in entries.items()}

    def _opened_entry(self, row: str, entry: Entry) -> Entry:
        if not _is_sealed(entry.value):
            return entry
        value, about = _spoken.decode(self.open(entry.value[_MARK], row))
        return Entry(entry.kind, entry.digest, value, entry.branch, about)


def _is_sealed(value: Any) -> bool:
    return is_object(value) and len(value) == 1 and type(value.get(_MARK)) is bytes


class SealedStore:
    """Implements `ekiden.Store` around another one; `tasks` is sealed too."""

    def __init__(self, inner: Store, keys: Callable[[], KeyRing]) -> None:
        self._inner = inner
        self._seal = _Seal(keys)
        self.shared = inner.shared
        self.waits = inner.waits
        self.tasks = None if inner.tasks is None else SealedTasks(inner.tasks, self._seal)

    def is_new(self, round_id: str) -> bool:
        """Whether nothing is known of a round."""
        return self._inner.is_new(round_id)

    async def look(self, round_id: str, history: str, *, now: float) -> Known | None:
        """How a round ended."""
        found = await self._inner.look(round_id, history, now=now)
        return self._recorded(round_id, found) if isinstance(found, Recorded) else found

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
        claim = await self._inner.claim(
            round_id, history, now=now, lease=lease, expires=expires, instead_of=instead_of
        )
        if isinstance(claim, Claimed):
            return Claimed(claim.fence, self._seal.open_entries(f"round {round_id}", claim.entries))
        return self._recorded(round_id, claim) if isinstance(claim, Recorded) else claim

    def _recorded(self, round_id: str, found: Recorded) -> Recorded:
        return Recorded(self._seal.open(found.outcome, f"outcome {round_id}"))

    async def renew(self, round_id: str, fence: int, *, now: float, lease: float, expires: float) -> bool:
        """Keep a claim for longer."""
        return await self._inner.renew(round_id, fence, now=now, lease=lease, expires=expires)

    async def commit(self, round_id: str, fence: int, entries: Mapping[str, Entry]) -> bool:
        """Remember entries."""
        return await self._inner.commit(
            round_id, fence, self._seal.seal_entries(f"round {round_id}", entries)
        )

    async def finish(self, round_id: str, fence: int, outcome: bytes) -> bool:
        """Record how the round ended."""
        return await self._inner.finish(round_id, fence, self._seal.seal(outcome, f"outcome {round_id}"))

    async def release(self, round_id: str, fence: int) -> None:
        """Give a claim back."""
        await self._inner.release(round_id, fence)

    async def put_journal(self, journal_id: str, data: bytes, *, expires: float) -> None:
        """Keep a journal."""
        sealed = self._seal.seal(data, f"journal {journal_id}")
        await self._inner.put_journal(journal_id, sealed, expires=expires)

    async def get_journal(self, journal_id: str) -> bytes | None:
        """A journal that was kept."""
        kept = await self._inner.get_journal(journal_id)
        return None if kept is None else self._seal.open(kept, f"journal {journal_id}")

    async def purge(self, *, now: float) -> None:
        """Forget what has expired."""
        await self._inner.purge(now=now)

    async def migrate(self) -> None:
        """Make the tables, or bring them up to date."""
        await self._inner.migrate()

    async def close(self) -> None:
        """Release what the store holds."""
        await self._inner.close()


class SealedTasks(TaskStore):
    """Implements the port of tasks around another store of tasks."""

    def __init__(self, inner: TaskStore, seal: _Seal) -> None:
        self._inner = inner
        self._seal = seal

    def _sealed(self, record: TaskRecord) -> TaskRecord:
        return self._hide(msgspec.structs.replace(record), record)

    def _hide(self, kept: TaskRecord, record: TaskRecord) -> TaskRecord:
        """Make `kept` what the store gets of a record."""
        for name in record.__struct_fields__:
            setattr(kept, name, getattr(record, name))
        secrets = _Secrets(*(getattr(record, name) for name in _Secrets.__struct_fields__))
        kept.arguments = {_MARK: self._seal.seal(_encode(secrets), f"task {record.id}")}
        kept.meta, kept.message, kept.questions = {}, None, {}
        kept.result = kept.error = None
        return kept

    def _opened(self, kept: TaskRecord) -> TaskRecord:
        if not _is_sealed(kept.arguments):
            return kept
        secrets = _secrets.decode(self._seal.open(kept.arguments[_MARK], f"task {kept.id}"))
        found = {name: getattr(secrets, name) for name in _Secrets.__struct_fields__}
        return msgspec.structs.replace(kept, **found)

    async def insert(self, record: TaskRecord, entries: Mapping[str, Entry]) -> TaskRecord:
        """Keep a new task."""
        sealed = self._seal.seal_entries(f"task {record.id}", entries)
        kept = await self._inner.insert(self._sealed(record), sealed)
        return record if kept.id == record.id else self._opened(kept)

    async def change(
        self,
        task_id: str,
        make: Callable[[TaskRecord], T],
        entries: Mapping[str, Entry] | None = None,
        known: TaskRecord | None = None,
    ) -> tuple[TaskRecord, T] | None:
        """Change a row by a function."""

        def make_sealed(kept: TaskRecord) -> T:
            record = self._opened(kept)
            made = make(record)
            self._hide(kept, record)
            return made

        sealed = self._seal.seal_entries(f"task {task_id}", entries or {})
        changed = await self._inner.change(
            task_id, make_sealed, sealed, None if known is None else self._sealed(known)
        )
        return None if changed is None else (self._opened(changed[0]), changed[1])

    async def append(self, task_id: str, fence: int, entries: Mapping[str, Entry]) -> State | None:
        """Add to a journal."""
        return await self._inner.append(task_id, fence, self._seal.seal_entries(f"task {task_id}", entries))

    async def load(self, task_id: str) -> TaskRecord | None:
        """A row."""
        kept = await self._inner.load(task_id)
        return None if kept is None else self._opened(kept)

    async def entries(self, task_id: str) -> dict[str, Entry]:
        """A journal."""
        return self._seal.open_entries(f"task {task_id}", await self._inner.entries(task_id))

    async def due(self, audience: str, tools: Collection[str], *, now: float, limit: int) -> list[Due]:
        """Tasks that may be claimed."""
        return await self._inner.due(audience, tools, now=now, limit=limit)

    async def next_due(self, audience: str, tools: Collection[str]) -> float | None:
        """When the next may be."""
        return await self._inner.next_due(audience, tools)

    async def claim_all(self, task_ids: Sequence[str], *, now: float, lease: float) -> list[Held]:
        """Try to claim several at once. What cannot be opened is put back, for a worker that has its key."""
        opened: list[Held] = []
        for held in await self._inner.claim_all(task_ids, now=now, lease=lease):
            try:
                entries = self._seal.open_entries(f"task {held.record.id}", held.entries)
                opened.append(Held(self._opened(held.record), entries))
            except StoreRefused as problem:
                _log.error("Task %s cannot be run here: %s", held.record.id, problem)
                await self._inner.release(held.record.id, held.fence, now=now, after=_NOT_OURS_SECONDS)
        return opened

    async def extend(self, held: Mapping[str, int], *, until: float) -> set[str]:
        """Extend leases."""
        return await self._inner.extend(held, until=until)

    async def overdue(self, *, now: float, limit: int) -> list[str]:
        """Tasks whose time is over."""
        return await self._inner.overdue(now=now, limit=limit)

    async def forget(self, *, before: float) -> int:
        """Remove old tasks."""
        return await self._inner.forget(before=before)

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
        found = await self._inner.listing(
            audience=audience, principal=principal, state=state, after=after, limit=limit
        )
        return [self._opened(record) for record in found]

    def watch(self, watcher: Watcher, *, works: bool = False) -> Callable[[], None]:
        """Be told of changes."""
        return self._inner.watch(watcher, works=works)

    async def check(self) -> None:
        """Look into the store."""
        await self._inner.check()
