"""The port between stories and their stores.

The promises that every store makes, and that `ekiden.testing.StoryStoreContract` checks:

1. `write` is durable when it returns, all or nothing. Rows of one call that several processes write become
   one: the newest state counts, and sizes add up.
2. Events are read in the order in which they were written.
3. Watchers are told the ids of calls that were written, also by other processes. That is a hint: it may be
   lost, doubled or late.
"""

import abc
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from ekiden.stories.events import Action, CallRow, CallStatus

__all__ = ["CallQuery", "Place", "StoryStore", "StoryWatcher", "Told"]

Place: TypeAlias = tuple[float, str]
"""The place of a call in a listing: when it began, and its id."""

StoryWatcher: TypeAlias = Callable[[Sequence[str]], None]
"""Called with the ids of calls that have changed; with none if some may have been missed."""


class CallQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls to list, the newest first."""

    states: tuple[CallStatus, ...] = ()
    """Only those in one of these states; all if it is empty."""
    targets: tuple[str, ...] = ()
    """Only those of one of these tools, prompts or URIs; all if it is empty."""
    after: Place | None = None
    """The last one of the page before."""
    limit: int = 50


class Told(msgspec.Struct, frozen=True):
    """What is written of one call at once."""

    row: CallRow
    events: bytes
    """Encoded; empty if only the row has changed."""


class StoryStore(abc.ABC):
    """Stories of calls, and the audit log of what was done on the pages."""

    @abc.abstractmethod
    async def write(self, told: Sequence[Told]) -> None:
        """Keep what was told, and tell the watchers."""

    @abc.abstractmethod
    async def load(self, call_id: str) -> CallRow | None:
        """The row of a call."""

    @abc.abstractmethod
    async def events(self, call_id: str) -> list[bytes]:
        """What was written of a call, in order."""

    @abc.abstractmethod
    async def listing(self, query: CallQuery) -> Sequence[CallRow]:
        """Calls, the newest first."""

    @abc.abstractmethod
    async def targets(self) -> list[str]:
        """The tools, prompts and URIs of all calls, in order; at most some hundreds."""

    @abc.abstractmethod
    async def trim(self, *, before: float, most_calls: int, most_bytes: int) -> int:
        """Forget calls that were quiet since `before`, and the oldest beyond these limits; how many."""

    @abc.abstractmethod
    async def note(self, action: Action) -> None:
        """Add to the audit log."""

    @abc.abstractmethod
    async def actions(self, *, before: float | None = None, limit: int = 50) -> list[Action]:
        """The audit log, the newest first; `before` is the time of the last one of the page before."""

    @abc.abstractmethod
    def watch(self, watcher: StoryWatcher) -> Awaitable[Callable[[], None]]:
        """Be told of changes, in the event loop that is running now; call what is returned to end that."""
