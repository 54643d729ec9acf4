"""Writes stories into their store, in batches and beside the calls: no call waits for it.

What cannot be written is tried again while there is room for it, and dropped beyond that: a story is never
worth a call.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from ekiden.errors import EkidenError
from ekiden.stories.events import CallRow, Event, Recording, encode_events
from ekiden.stories.store import StoryStore, Told

__all__ = ["Recorder"]

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.05
"""Between two writes. The first of a quiet time is made at once."""
_AGAIN_SECONDS: Final = 1.0
"""Before the next try, if the store is away."""
_MOST_EVENTS: Final = 20_000
"""Events that wait to be written; more are dropped, and their number is kept."""
_TRIM_SECONDS: Final = 30.0
_FLUSH_SECONDS: Final = 2.0
"""How long the end of a server waits for its last stories."""


class _Waiting(msgspec.Struct):
    """What is still to be written of one call."""

    row: CallRow
    events: list[Event]
    dropped: int = 0


class Recorder:
    """Keeps what a server tells of its calls. `keep` may be called in any thread."""

    def __init__(
        self,
        store: StoryStore,
        recording: Recording,
        audience: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.recording = recording
        self.audience = audience
        self.now = clock
        self._waiting: dict[str, _Waiting] = {}
        self._count = 0
        self._writing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._trimmed_at = float("-inf")

    def keep(self, row: CallRow, *events: Event) -> None:
        """Have a row and events of its call written soon."""
        waiting = self._waiting.get(row.id)
        if waiting is None:
            waiting = self._waiting[row.id] = _Waiting(row, [])
        waiting.row = row
        if self._count + len(events) > _MOST_EVENTS:
            waiting.dropped += len(events)
        else:
            self._count += len(events)
            waiting.events.extend(events)
        self._wake()

    def _wake(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # In the thread of a step.
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._begin)
            return
        self._loop = loop
        self._begin()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._writing is None or self._writing.done() or self._writing.get_loop() is not loop:
            self._writing = loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._waiting:
            taken, self._waiting, self._count = self._waiting, {}, 0
            try:
                await self.store.write([self._told(each) for each in taken.values()])
                await self._trim_now_and_then()
            except EkidenError as problem:
                _log.warning("What happened to %d calls is not written yet: %s", len(taken), problem)
                self._put_back(taken)
                await asyncio.sleep(_AGAIN_SECONDS)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _told(self, waiting: _Waiting) -> Told:
        row, events = waiting.row, waiting.events
        if waiting.dropped:
            lost = Event(row.updated, "lost_count", "", size=waiting.dropped)
            events = [*events, lost]
        data = encode_events(events) if events else b""
        return Told(msgspec.structs.replace(row, size=len(data)), data)

    def _put_back(self, taken: dict[str, _Waiting]) -> None:
        """Write these the next time, before what has come meanwhile."""
        newer, self._waiting, self._count = self._waiting, taken, 0
        for call_id, later in newer.items():
            before = taken.setdefault(call_id, later)
            if before is not later:
                before.row, before.dropped = later.row, before.dropped + later.dropped
                before.events.extend(later.events)
        for each in taken.values():
            room = max(0, _MOST_EVENTS - self._count)
            each.dropped += max(0, len(each.events) - room)
            del each.events[room:]
            self._count += len(each.events)

    async def _trim_now_and_then(self) -> None:
        now, limits = time.monotonic(), self.recording
        if now - self._trimmed_at > _TRIM_SECONDS:
            self._trimmed_at = now
            await self.store.trim(
                before=self.now() - limits.keep_seconds, most_calls=limits.calls, most_bytes=limits.bytes
            )

    async def flush(self) -> None:
        """Write what is still to be written; if that takes too long, it is left."""
        if self._waiting:
            self._begin()
        if self._writing is not None and self._writing.get_loop() is asyncio.get_running_loop():
            _, late = await asyncio.wait({self._writing}, timeout=_FLUSH_SECONDS)
            for task in late:
                task.cancel()
                await asyncio.wait({task}, timeout=_FLUSH_SECONDS)
