"""The port between tasks and their stores.

A store keeps rows and their journals, and tells its watchers that a row has changed. It implements the
few primitives below; what is done to a task is the same on every store, because the moves are made by
the functions of `moves` inside `change`.

The promises that every store makes, and that `ekiden.testing.TaskStoreContract` checks:

1. `insert`, `change` and `append` are durable when they return, all or nothing, one after another.
2. `append` adds nothing unless its caller holds the fence of a running task.
3. Signals are hints: one may be lost, doubled or late. A watcher must also look by itself from time to time.
"""

import abc
import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from ekiden.errors import IllegalMove, LostClaim
from ekiden.rounds.journal import Entry
from ekiden.tasks import moves
from ekiden.tasks.moves import Ending, Suspension
from ekiden.tasks.record import TaskRecord, encode_record
from ekiden.tasks.states import State

__all__ = [
    "ABANDONED_SECONDS",
    "Due",
    "Glance",
    "Held",
    "Place",
    "Signal",
    "TaskQuery",
    "TaskStore",
    "Usage",
    "Watcher",
    "is_quiet",
]

T = TypeVar("T")


ABANDONED_SECONDS: Final = 30 * 86_400.0
"""How much longer a task is kept whose clean-up nobody has run, or whose servers are gone."""


class Signal(msgspec.Struct, frozen=True, array_like=True):
    """A row has changed."""

    task_id: str
    due: float | None
    """When a worker may claim it."""


def is_quiet(record: TaskRecord, updated: float) -> bool:
    """True if watchers need not be told: a claim changes nothing that a client can see."""
    return record.state == "running" and record.updated == updated


Watcher: TypeAlias = Callable[[Signal], None]
Place: TypeAlias = tuple[float, str]
"""The place of a task in a listing: when it was created, and its id."""


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to list for an operator, the newest first. What is empty or None does not matter."""

    states: tuple[State, ...] = ()
    """Only those in one of these states."""
    tools: tuple[str, ...] = ()
    """Only those of one of these tools."""
    principal: str | None = None
    after: Place | None = None
    """The last one of the page before."""
    limit: int = 50

    def fits(self, record: TaskRecord) -> bool:
        """Whether a task is among those."""
        return (
            (not self.states or record.state in self.states)
            and (not self.tools or record.tool in self.tools)
            and self.principal in (None, record.principal)
        )


class Due(msgspec.Struct, frozen=True):
    """What decides when a task that may be claimed is next."""

    id: str
    principal: str
    due: float
    state: State
    fence: int
    losses: int


class Usage(msgspec.Struct, frozen=True):
    """What the tasks of one principal take of a store."""

    open: int
    """Those that have not ended."""
    bytes: int
    """Of the rows of all, without their journals."""


class Glance(msgspec.Struct, weakref=True, eq=False):
    """A read-only row, with room to cache its rendered JSON."""

    record: TaskRecord
    spelled: bytes | None = None
    kept: "Glance | None" = None
    """The row as the store has it, where that is sealed."""


class Held(msgspec.Struct, frozen=True):
    """A task that was claimed, with its journal."""

    record: TaskRecord
    entries: dict[str, Entry]

    @property
    def fence(self) -> int:
        """The number that proves the claim."""
        return self.record.fence


class TaskStore(abc.ABC):
    """Rows of tasks and their journals. The time comes in as `now`."""

    # Primitives, which a store implements

    @abc.abstractmethod
    async def insert(self, record: TaskRecord, entries: Mapping[str, Entry]) -> TaskRecord:
        """Keep a new task with its journal. If its flow has become a task before, that one is returned."""

    @abc.abstractmethod
    async def change(
        self,
        task_id: str,
        make: Callable[[TaskRecord], T],
        entries: Mapping[str, Entry] | None = None,
        known: TaskRecord | None = None,
    ) -> tuple[TaskRecord, T] | None:
        """Change a row by a function, and add to its journal; None if there is no such task.

        What the function raises is raised, and then nothing has changed. The function may be called more than
        once, each time with the row as it is then. `known` is the row as the caller has seen it last: with
        it a store may save a read.
        """

    @abc.abstractmethod
    async def append(self, task_id: str, fence: int, entries: Mapping[str, Entry]) -> State | None:
        """Add to the journal of a task that is held with `fence`: its state, or None if the claim is lost."""

    @abc.abstractmethod
    async def load(self, task_id: str) -> TaskRecord | None:
        """A row."""

    @abc.abstractmethod
    async def entries(self, task_id: str) -> dict[str, Entry]:
        """A journal, in the order in which it was written."""

    @abc.abstractmethod
    async def due(self, audience: str, tools: Collection[str], *, now: float, limit: int) -> list[Due]:
        """Tasks of these tools that may be claimed, the longest overdue first.

        Where there are more than `limit`, the first of each principal that is not among these comes behind.
        """

    @abc.abstractmethod
    async def next_due(self, audience: str, tools: Collection[str]) -> float | None:
        """When the next task of these tools may be claimed; in the past if one may be now."""

    @abc.abstractmethod
    async def extend(self, held: Mapping[str, int], *, until: float) -> set[str]:
        """Extend the leases of tasks held with these fences; those that are still held.

        With none it still finds out whether leases could be extended now: `StoreUnavailable` if not.
        """

    @abc.abstractmethod
    async def overdue(self, *, now: float, limit: int) -> list[str]:
        """Tasks that have not ended although their time is over."""

    @abc.abstractmethod
    async def forget(self, *, before: float, audience: str | None = None) -> int:
        """Remove tasks that have ended and whose time was over before then; how many.

        With an audience only its own: others may keep theirs for longer. One whose clean-up nobody has run,
        or whose servers are gone, is removed `ABANDONED_SECONDS` later.
        """

    @abc.abstractmethod
    async def listing(
        self,
        *,
        audience: str | None = None,
        principal: str | None = None,
        state: State | None = None,
        after: Place | None = None,
        limit: int = 100,
    ) -> Sequence[TaskRecord]:
        """Tasks for an operator, the newest first; `after` is the last one of the page before."""

    @abc.abstractmethod
    def watch(self, watcher: Watcher, *, works: bool = False) -> Callable[[], None]:
        """Be told of changes, in the event loop that is running now; call what is returned to end that.

        `works` says that the watcher runs tasks: a store may tell only one such that a task is due.
        """

    async def usage(self, audience: str, principal: str) -> Usage:
        """What the tasks of one principal take. A store that can count should: this one reads all of them."""
        count = size = 0
        after: Place | None = None
        while page := await self.listing(audience=audience, principal=principal, after=after):
            count += sum(not record.final for record in page)
            size += sum(len(encode_record(record)) for record in page)
            after = (page[-1].created, page[-1].id)
        return Usage(count, size)

    async def search(self, query: TaskQuery) -> Sequence[TaskRecord]:
        """Tasks that a query is for. A store with an index should use it: this one reads all of them."""
        found: list[TaskRecord] = []
        after = query.after
        while len(found) < query.limit and (page := await self.listing(after=after, limit=1000)):
            found.extend(record for record in page if query.fits(record))
            after = (page[-1].created, page[-1].id)
        return found[: query.limit]

    async def tools(self) -> list[str]:
        """The tools of all tasks, in order. A store with an index should use it."""
        known: set[str] = set()
        after: Place | None = None
        while page := await self.listing(after=after, limit=1000):
            known.update(record.tool for record in page)
            after = (page[-1].created, page[-1].id)
        return sorted(known)

    async def check(self) -> None:
        """Raise `UsageError` if the store cannot be used as it is: its tables are too old or too new."""
        await self.load("")

    async def glance(self, task_id: str) -> Glance | None:
        """A row to read. A store that can tell that it has not changed may return the same object again."""
        record = await self.load(task_id)
        return None if record is None else Glance(record)

    # What is done to tasks

    async def claim(self, task_id: str, *, now: float, lease: float) -> Held | None:
        """Try to claim a task that is due; None if another worker was faster."""

        def make(record: TaskRecord) -> None:
            moves.claim(record, now=now, lease=lease)

        try:
            changed = await self.change(task_id, make)
        except (LostClaim, IllegalMove):
            return None
        return None if changed is None else Held(changed[0], await self.entries(task_id))

    async def claim_all(self, task_ids: Sequence[str], *, now: float, lease: float) -> list[Held]:
        """Try to claim several at once; those that were claimed. None of them waits for another."""
        tries = await asyncio.gather(*(self.claim(task_id, now=now, lease=lease) for task_id in task_ids))
        return [held for held in tries if held is not None]

    async def survive(self, task_id: str, fence: int) -> bool:
        """Say that the worker lives which lost a task held with `fence`; whether that counted as a loss."""
        try:
            return await self.change(task_id, lambda record: moves.survive(record, fence)) is not None
        except (LostClaim, IllegalMove):
            return False

    async def publish(
        self,
        task_id: str,
        fence: int,
        leaves: Suspension,
        entries: Mapping[str, Entry],
        *,
        now: float,
        known: TaskRecord | None = None,
    ) -> TaskRecord:
        """Put questions while the leg goes on."""
        return await self._held(
            task_id, lambda record: moves.publish(record, fence, leaves, now=now), entries, known
        )

    async def suspend(
        self,
        task_id: str,
        fence: int,
        leaves: Suspension,
        entries: Mapping[str, Entry],
        *,
        now: float,
        known: TaskRecord | None = None,
    ) -> TaskRecord:
        """End a leg: the task waits."""
        return await self._held(
            task_id, lambda record: moves.suspend(record, fence, leaves, now=now), entries, known
        )

    async def release(self, task_id: str, fence: int, *, now: float, after: float = 0.0) -> TaskRecord:
        """Hand a task over."""
        return await self._held(task_id, lambda record: moves.release(record, fence, now=now, after=after))

    async def finish(
        self,
        task_id: str,
        fence: int,
        ending: Ending,
        entries: Mapping[str, Entry] | None = None,
        *,
        now: float,
        message: str | None = None,
        known: TaskRecord | None = None,
    ) -> TaskRecord:
        """End a task with a result or an error."""
        return await self._held(
            task_id,
            lambda record: moves.finish(record, fence, ending, now=now, message=message),
            entries,
            known,
        )

    async def stop(self, task_id: str, fence: int, *, now: float, lease: float, tidy: bool) -> TaskRecord:
        """End a task whose cancellation was asked for."""
        return await self._held(
            task_id, lambda record: moves.stop(record, fence, now=now, lease=lease, tidy=tidy)
        )

    async def give_up(
        self, task_id: str, fence: int, error: bytes, *, now: float, lease: float, tidy: bool, message: str
    ) -> TaskRecord:
        """End a task that lost too many workers."""
        return await self._held(
            task_id,
            lambda record: moves.give_up(
                record, fence, error, now=now, lease=lease, tidy=tidy, message=message
            ),
        )

    async def tidied(self, task_id: str, fence: int) -> TaskRecord:
        """The clean-up of a task is done."""
        return await self._held(task_id, lambda record: moves.tidied(record, fence))

    async def _held(
        self,
        task_id: str,
        make: Callable[[TaskRecord], None],
        entries: Mapping[str, Entry] | None = None,
        known: TaskRecord | None = None,
    ) -> TaskRecord:
        changed = await self.change(task_id, make, entries, known)
        if changed is None:
            raise LostClaim(f"task {task_id} is gone")
        return changed[0]

    async def answer(self, task_id: str, responses: Mapping[str, Any], *, now: float) -> tuple[str, ...]:
        """Answer open questions; the keys that were open."""
        changed = await self.change(task_id, lambda record: moves.answer(record, responses, now=now))
        return () if changed is None else changed[1]

    async def wake(self, seen: TaskRecord, entries: Mapping[str, Entry], *, now: float) -> TaskRecord:
        """Let a task go on that waits for a time; `seen` and `entries` are its row and journal as read."""
        fence = seen.fence
        return await self._held(
            seen.id, lambda record: moves.wake(record, fence, now=now), moves.woken(entries, now=now)
        )

    async def cancel(self, task_id: str, *, now: float, tidy: bool, message: str | None = None) -> bool:
        """Ask for a task to be cancelled."""
        changed = await self.change(
            task_id, lambda record: moves.cancel(record, now=now, tidy=tidy, message=message)
        )
        return changed is not None and changed[1]

    async def expire(
        self,
        task_ids: Iterable[str],
        error: bytes,
        *,
        now: float,
        message: str,
    ) -> list[TaskRecord]:
        """Fail tasks whose time is over; those for which that was news. A worker cleans up after them."""

        def make(record: TaskRecord) -> bool:
            return moves.expire(record, error, now=now, message=message)

        changed = await asyncio.gather(*(self.change(task_id, make) for task_id in task_ids))
        return [each[0] for each in changed if each is not None and each[1]]
