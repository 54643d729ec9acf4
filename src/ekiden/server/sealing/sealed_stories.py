"""Stories whose contents are sealed: what was asked, answered and logged is not to be read in the store."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ekiden.errors import StoreRefused
from ekiden.server.sealing.seal import Seal
from ekiden.stories.events import Action, CallRow
from ekiden.stories.store import CallQuery, StoryStore, StoryWatcher, Told

__all__ = ["SealedStories"]

_log = logging.getLogger(__name__)

_FACTS: Final = "facts of a call"
_EVENTS: Final = "events of a call"


class SealedStories(StoryStore):
    """Implements the port of stories around another store of them. The audit log stays in the clear."""

    def __init__(self, inner: StoryStore, seal: Seal) -> None:
        self._inner = inner
        self._seal = seal
        self._level = logging.WARNING

    async def write(self, told: Sequence[Told]) -> None:
        """Seal and keep what was told."""
        await self._inner.write([self._sealed(each) for each in told])

    def _sealed(self, told: Told) -> Told:
        row, events = told.row, told.events
        facts = self._seal.seal(row.facts, _FACTS, row.id)
        if events:
            events = self._seal.seal(events, _EVENTS, row.id)
        return Told(msgspec.structs.replace(row, facts=facts, size=len(events)), events)

    def _opened(self, row: CallRow) -> CallRow:
        return msgspec.structs.replace(row, facts=self._seal.open(row.facts, _FACTS, row.id))

    async def load(self, call_id: str) -> CallRow | None:
        """A row."""
        row = await self._inner.load(call_id)
        return None if row is None else self._opened(row)

    async def events(self, call_id: str) -> list[bytes]:
        """What was written of a call."""
        return [self._seal.open(each, _EVENTS, call_id) for each in await self._inner.events(call_id)]

    async def listing(self, query: CallQuery) -> Sequence[CallRow]:
        """Calls, the newest first. Of one that cannot be opened, what lies in the clear is shown."""
        return [self._listed(row) for row in await self._inner.listing(query)]

    def _listed(self, row: CallRow) -> CallRow:
        try:
            return self._opened(row)
        except StoreRefused as problem:
            # Lists are drawn again and again: once is enough to know.
            _log.log(self._level, "Call %s, and maybe others, cannot be read here: %s", row.id, problem)
            self._level = logging.DEBUG
            return msgspec.structs.replace(row, facts=b"")

    async def targets(self) -> list[str]:
        """What was called."""
        return await self._inner.targets()

    async def trim(self, *, before: float, most_calls: int, most_bytes: int) -> int:
        """Forget old calls."""
        return await self._inner.trim(before=before, most_calls=most_calls, most_bytes=most_bytes)

    async def note(self, action: Action) -> None:
        """Add to the audit log."""
        await self._inner.note(action)

    async def actions(self, *, before: float | None = None, limit: int = 50) -> list[Action]:
        """The audit log."""
        return await self._inner.actions(before=before, limit=limit)

    async def watch(self, watcher: StoryWatcher) -> Callable[[], None]:
        """Be told of changes."""
        return await self._inner.watch(watcher)
