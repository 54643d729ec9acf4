"""Stories in memory: those of one process, and lost with it."""

import heapq
from collections.abc import Callable, Sequence

import msgspec

from ekiden.bus.listeners import Listeners
from ekiden.stories.events import Action, CallRow
from ekiden.stories.store import CallQuery, StoryStore, StoryWatcher, Told

__all__ = ["MemoryStories"]

_MOST_ACTIONS = 10_000
"""Lines of the audit log."""


class MemoryStories(StoryStore):
    """Implements the port in dicts."""

    def __init__(self) -> None:
        self._rows: dict[str, CallRow] = {}
        self._events: dict[str, list[bytes]] = {}
        self._actions: list[Action] = []
        self._watchers = Listeners[Sequence[str]]()

    async def write(self, told: Sequence[Told]) -> None:
        """Keep what was told."""
        for each in told:
            row, before = msgspec.structs.replace(each.row), self._rows.get(each.row.id)
            if before is not None:
                size = before.size + row.size
                newest = row if row.updated >= before.updated else before
                row = msgspec.structs.replace(newest, size=size, started=min(row.started, before.started))
            self._rows[row.id] = row
            if each.events:
                self._events.setdefault(row.id, []).append(each.events)
        self._watchers.tell([each.row.id for each in told])

    async def load(self, call_id: str) -> CallRow | None:
        """A row."""
        row = self._rows.get(call_id)
        return None if row is None else msgspec.structs.replace(row)

    async def events(self, call_id: str) -> list[bytes]:
        """What was written of a call."""
        return list(self._events.get(call_id, ()))

    async def listing(self, query: CallQuery) -> Sequence[CallRow]:
        """Calls, the newest first."""
        found = [
            row
            for row in self._rows.values()
            if (not query.states or row.state in query.states)
            and (not query.targets or row.target in query.targets)
            and (query.after is None or (row.started, row.id) < query.after)
        ]
        newest = heapq.nlargest(query.limit, found, key=lambda row: (row.started, row.id))
        return [msgspec.structs.replace(row) for row in newest]

    async def targets(self) -> list[str]:
        """What was called."""
        return sorted({row.target for row in self._rows.values()})

    async def trim(self, *, before: float, most_calls: int, most_bytes: int) -> int:
        """Forget old calls."""
        quiet = sorted(self._rows.values(), key=lambda row: row.updated)
        calls, size, forgotten = len(quiet), sum(row.size for row in quiet), 0
        for row in quiet:
            if row.updated >= before and calls <= most_calls and size <= most_bytes:
                break
            del self._rows[row.id]
            self._events.pop(row.id, None)
            calls, size, forgotten = calls - 1, size - row.size, forgotten + 1
        return forgotten

    async def note(self, action: Action) -> None:
        """Add to the audit log."""
        self._actions.append(action)
        del self._actions[:-_MOST_ACTIONS]

    async def actions(self, *, before: float | None = None, limit: int = 50) -> list[Action]:
        """The audit log, the newest first."""
        older = [each for each in self._actions if before is None or each.at < before]
        return older[: -limit - 1 : -1]

    async def watch(self, watcher: StoryWatcher) -> Callable[[], None]:
        """Be told of changes."""
        return self._watchers.add(watcher)
