"""The events of streams that several processes share (2025: Resumability and Redelivery).

The process that runs the requests of a stream writes its events to the store before it sends them, many at a
time. If the store is away, it sends them all the same. Any other process can read them there for a client
that comes back. Each stream has a lease; when it has run out and is not renewed, the requests that had no
response get an error, so that no client waits for a process that is gone.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final, Protocol

import msgspec

from ekiden.errors import InternalError, StoreUnavailable
from ekiden.sessions.messages import Followed, News, Streamed
from ekiden.sessions.shared import SharedSessions, key_of
from ekiden.sessions.store import StreamPart, StreamView
from ekiden.wire import jsonrpc, sse
from ekiden.wire.jsonrpc import RequestId

__all__ = ["Events", "LoggedStream", "StreamLogs"]

_log = logging.getLogger(__name__)

_LEASE_SECONDS: Final = 6.0
_RENEW_SECONDS: Final = 2.0
_LATE_SECONDS: Final = 3.0
"""How long a lease that has run out is watched before its stream is taken to be lost. Its process may have
been unable to renew it, because the store was away, or its clock may be another."""
_LOOK_SECONDS: Final = 2.0
"""How often a stream of another process is looked at, besides when that process says that there is news."""
_AGAIN_SECONDS: Final = 1.0
_KEPT_SECONDS: Final = 60.0
"""How long a stream that has ended is kept."""

_spell = msgspec.json.Encoder().encode
_read_waiting = msgspec.json.Decoder(list[int | str]).decode

Events = list[tuple[int, bytes]]


class LoggedStream(Protocol):
    """The stream of a call, as its log sees it."""

    number: int | None
    ended: bool
    written_to: int | None
    """Events beyond this one are not sent yet."""
    on_change: Callable[[], None] | None
    """Called when there is an event more, or it has ended."""

    @property
    def first(self) -> int:
        """The number of the first event that is kept."""
        ...

    @property
    def waiting(self) -> Mapping[RequestId, None]:
        """The requests that have no response yet."""
        ...

    def wake(self) -> None:
        """Send what may be sent now."""
        ...

    def since(self, after: int) -> Events:
        """The kept events beyond one."""
        ...


class _Lease:
    """The lease of a stream, as a reader sees it again and again.

    A clock that is ahead writes leases that run out late. So one that is not renewed for as long as a lease
    lasts has run out, whatever it says.
    """

    def __init__(self) -> None:
        self._until = float("-inf")
        self._unchanged_since = float("inf")
        self._late_since = float("inf")

    def is_lost(self, view: StreamView, now: float) -> bool:
        """Whether nobody will end a stream as it should: its process has stopped, or does not renew its
        lease."""
        if view.has_ended:
            return bool(view.waiting)
        seen = asyncio.get_running_loop().time()
        if view.leased_until != self._until:
            self._until, self._unchanged_since, self._late_since = view.leased_until, seen, float("inf")
        has_run_out = view.leased_until <= now or seen - self._unchanged_since >= _LEASE_SECONDS
        self._late_since = min(self._late_since, seen) if has_run_out else float("inf")
        return seen - self._late_since >= _LATE_SECONDS


class StreamLogs:
    """Writes the streams of this process, and reads those of others."""

    def __init__(self, shared: SharedSessions) -> None:
        self._shared = shared
        self._logs: dict[tuple[str, int], _Log] = {}
        self._followers: dict[tuple[str, int], set[asyncio.Event]] = {}
        self._renewing: asyncio.Task[None] | None = None
        shared.hearing.append(self)

    # Writing

    def keep(self, session_id: str, stream: LoggedStream) -> None:
        """Write the events of a stream from now on."""
        assert stream.number is not None
        place = key_of(session_id), stream.number
        log = self._logs[place] = _Log(self._shared, place[0], stream, lambda: self._forget(place))
        stream.on_change = log.changed
        log.changed()
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())
        self._shared.purge_in_time()

    def forget(self, session_id: str, number: int) -> None:
        """Keep nothing of a stream that has ended."""
        self._shared.soon(self._drop(key_of(session_id), number))

    async def _drop(self, key: str, number: int) -> None:
        if (log := self._logs.get((key, number))) is not None:
            await log.settle()
        await self._shared.store.drop(key, number)

    def _forget(self, place: tuple[str, int]) -> None:
        self._logs.pop(place, None)

    async def _renew(self) -> None:
        pause = _RENEW_SECONDS
        while self._logs:
            await asyncio.sleep(pause)
            try:
                until = self._shared.clock() + _LEASE_SECONDS
                await self._shared.store.extend(self._shared.name, until=until)
                pause = _RENEW_SECONDS
            except StoreUnavailable:
                pause = _AGAIN_SECONDS

    def heard(self, news: News | None) -> None:
        """Another process reads a stream of ours, or has written to one that is read here."""
        if news is None:
            for wakes in self._followers.values():
                for wake in wakes:
                    wake.set()
        elif isinstance(news, Followed):
            if (log := self._logs.get((news.session, news.number))) is not None:
                log.is_followed = True
        elif isinstance(news, Streamed):
            for wake in self._followers.get((news.session, news.number), ()):
                wake.set()

    async def stop(self) -> None:
        """Write what is left: other processes go on with it."""
        if self._renewing is not None:
            self._renewing.cancel()
        await asyncio.gather(*(log.settle() for log in tuple(self._logs.values())))

    # Reading

    async def has(self, session_id: str, number: int) -> bool:
        """Whether there is such a stream."""
        return await self._shared.store.read(key_of(session_id), number, after=2**62) is not None

    async def follow(self, session_id: str, number: int, after: int) -> AsyncGenerator[Events, None]:
        """The events of a stream beyond one, as they come, to its end."""
        key = key_of(session_id)
        wake = asyncio.Event()
        wakes = self._followers.setdefault((key, number), set())
        wakes.add(wake)
        self._shared.tell(Followed(key, number))
        lease = _Lease()
        try:
            while True:
                wake.clear()
                view = await self._look(key, number, after)
                if view is not None and view.events:
                    yield view.events
                    after = view.events[-1][0]
                if view is None or (view.has_ended and not view.waiting):
                    return
                if not lease.is_lost(view, self._shared.clock()):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_SECONDS):
                            await wake.wait()
                else:
                    await self._give_up(key, number, view, after)
        finally:
            wakes.discard(wake)
            if not wakes:
                self._followers.pop((key, number), None)

    async def _look(self, key: str, number: int, after: int) -> StreamView | None:
        while True:
            try:
                return await self._shared.store.read(key, number, after=after)
            except StoreUnavailable:
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _give_up(self, key: str, number: int, view: StreamView, last: int) -> None:
        requests = _read_waiting(view.waiting) if view.waiting else []
        events = [
            (
                place,
                sse.numbered(
                    number, place, jsonrpc.error_response(request, InternalError(jsonrpc.PROCESS_ENDED))
                ),
            )
            for place, request in enumerate(requests, last + 1)
        ]
        expires = self._shared.clock() + _KEPT_SECONDS
        with contextlib.suppress(StoreUnavailable):
            await self._shared.store.give_up(key, number, view, events, expires=expires)


class _Log:
    """Writes one stream. All that came meanwhile is written at once."""

    def __init__(
        self, shared: SharedSessions, key: str, stream: LoggedStream, on_done: Callable[[], None]
    ) -> None:
        self.is_followed = False
        self._shared = shared
        self._key = key
        self._stream = stream
        self._on_done = on_done
        self._written = 0
        self._is_new = True
        stream.written_to = 0
        self._writing: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """There is something to write."""
        self._is_new = True
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def settle(self) -> None:
        """Wait until all is written; not for a store that is away."""
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=_AGAIN_SECONDS)

    async def _write(self) -> None:
        while self._is_new:
            self._is_new = False
            part = self._part()
            try:
                is_kept = await self._shared.store.append(self._key, part)
            except StoreUnavailable as error:
                _log.debug("The events of a stream wait: %s", error)
                self._is_new = True
                self._release(None)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if part.events:
                self._written = part.events[-1][0]
            self._written = max(self._written, part.first - 1)  # Those before were given up.
            self._release(self._written if is_kept else None)
            if self.is_followed:
                self._shared.tell(Streamed(self._key, part.number))
            if not is_kept or part.expires is not None:
                self._stream.on_change = None
                self._on_done()
                return

    def _release(self, written_to: int | None) -> None:
        self._stream.written_to = written_to
        self._stream.wake()

    def _part(self) -> StreamPart:
        stream, now = self._stream, self._shared.clock()
        waiting = list(stream.waiting)
        assert stream.number is not None
        return StreamPart(
            number=stream.number,
            owner=self._shared.name,
            leased_until=now + _LEASE_SECONDS,
            events=stream.since(self._written),
            first=stream.first,
            waiting=_spell(waiting) if waiting else b"",
            expires=now + _KEPT_SECONDS if stream.ended else None,
        )
