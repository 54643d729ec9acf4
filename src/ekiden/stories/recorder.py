"""Writes stories into their store, in batches and beside the calls: no call waits for it.

What cannot be written is tried again while there is room for it, and dropped beyond that: a story is never
worth a call.
"""

import asyncio
import contextlib
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
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of what waits to be written, about: beyond them neither events nor calls are added."""
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
        self.hide: Callable[[str], str] | None = None
        """Takes secrets out of what is told; None if nothing that is told can have one."""
        self._waiting: dict[str, _Waiting] = {}
        self._count = self._bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._trimmed_at = float("-inf")

    def keep(self, row: CallRow, *events: Event) -> None:
        """Have a row and events of its call written soon."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # In the thread of a step.
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile.
                    self._loop.call_soon_threadsafe(self.keep, row, *events)
            return
        self._add(row, events)
        self._begin()

    def _add(self, row: CallRow, events: tuple[Event, ...]) -> None:
        waiting = self._waiting.get(row.id)
        if waiting is None:
            own = _weight_of(row)
            if self._bytes + own > _MOST_BYTES:
                return
            self._bytes += own
            waiting = self._waiting[row.id] = _Waiting(row, [])
        waiting.row = row
        weight = sum(map(_weight, events))
        if self._count + len(events) > _MOST_EVENTS or self._bytes + weight > _MOST_BYTES:
            waiting.dropped += len(events)
        else:
            self._count += len(events)
            self._bytes += weight
            waiting.events.extend(events)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._writing is None or self._writing.done() or self._writing.get_loop() is not loop:
            self._writing = loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._waiting:
            taken, self._waiting, self._count, self._bytes = self._waiting, {}, 0, 0
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
        newer, self._waiting, self._count, self._bytes = self._waiting, taken, 0, 0
        for call_id, later in newer.items():
            before = taken.setdefault(call_id, later)
            if before is not later:
                before.row, before.dropped = later.row, before.dropped + later.dropped
                before.events.extend(later.events)
        for call_id, each in list(taken.items()):
            own = _weight_of(each.row)
            if self._bytes + own > _MOST_BYTES:
                del taken[call_id]
                continue
            self._bytes += own
            self._put_events_back(each)

    def _put_events_back(self, waiting: _Waiting) -> None:
        """Keep the first of its events, as many as there is room for."""
        for place, event in enumerate(waiting.events):
            weight = _weight(event)
            if self._count == _MOST_EVENTS or self._bytes + weight > _MOST_BYTES:
                waiting.dropped += len(waiting.events) - place
                del waiting.events[place:]
                return
            self._count += 1
            self._bytes += weight

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


def _weight(event: Event) -> int:
    """The bytes that an event holds, about."""
    return 300 + len(event.name) + len(event.about) + len(event.value)


def _weight_of(row: CallRow) -> int:
    return 1000 + len(row.target) + len(row.facts)
