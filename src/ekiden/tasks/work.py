"""What a run of a task knows of the two around it: its tool, and the worker that has claimed it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from ekiden.rounds.asks import Ask
from ekiden.rounds.journal import Entry
from ekiden.rounds.leg import Suspended
from ekiden.rounds.outcome import Outcome
from ekiden.tasks.leases.renewing import Leases
from ekiden.tasks.leg import TaskLeg
from ekiden.tasks.limits import TaskLimits
from ekiden.tasks.observer import TaskObserver
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.store import TaskStore

__all__ = ["Why", "Work", "Worker", "to_its_end"]

T = TypeVar("T")

Why: TypeAlias = Literal["cancelled", "expired", "given up"]
"""Why a task did not come to its end."""


class Work(Protocol):
    """A task's tool, as the server that has it knows it."""

    title: str
    capabilities: Mapping[str, Any]
    tidies: bool
    """Whether there is a clean-up for tasks that do not come to their end."""
    is_paged: Callable[[Ask], bool] | None
    """Whether a question is answered by a person on a page; None if there are no pages."""

    async def run(self, leg: TaskLeg, say: Callable[[str], None]) -> Outcome | Suspended:
        """Run the handler. `say` takes its status message."""
        ...

    async def put(self, asked: Sequence[Question], withdrawn: Sequence[str]) -> None:
        """Put those questions that are for people, before the row has them. It may be repeated."""
        ...

    async def tidy(self, entries: Mapping[str, Entry], why: Why) -> None:
        """Clean up after a task that did not come to its end."""
        ...


class Worker(Protocol):
    """What a run needs of the worker that has claimed its task."""

    store: TaskStore
    limits: TaskLimits
    leases: Leases
    observer: TaskObserver
    result_bytes: int
    """The longest result that is kept."""

    def now(self) -> float:
        """The time."""
        ...

    def find(self, record: TaskRecord) -> Work | None:
        """The tool of a task, if this server has it."""
        ...

    def made_room(self) -> None:
        """A leg has ended, or has only to be committed: there is room for another."""
        ...

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside a leg."""
        ...

    async def insist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try until the store can be reached."""
        ...


async def to_its_end(work: Coroutine[Any, Any, None], is_in_vain: Callable[[], bool]) -> BaseException | None:
    """Do something to its end, also if the caller is cancelled, unless it is in vain; what it raised.

    A worker that stops waits for it, as for a step.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if is_in_vain():
                task.cancel()
                raise
            if (caller := asyncio.current_task()) is not None:
                caller.uncancel()
    if task.cancelled():  # The event loop ends.
        raise asyncio.CancelledError
    return task.exception()
