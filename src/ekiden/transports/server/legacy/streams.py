"""The streams of one session of 2025: one for each call that streams, and one for all else.

A stream that has ended is kept for a while, for a client that has not seen its end. Where several processes
share the session, each writes its streams to a log that all can read.
"""

import asyncio
import functools
import secrets
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Final

from ekiden.sessions.logs import Events, StreamLogs
from ekiden.transports.server.legacy.events import EventStream
from ekiden.transports.server.legacy.kept import Hold

__all__ = ["SessionStreams", "counted", "uncount"]

_KEPT: Final = 4
"""Ended streams that a session keeps."""
_KEPT_SECONDS: Final = 60.0
_WITHOUT_POLLING: Final = frozenset({"2025-06-18", "2025-03-26", "2024-11-05"})
"""Versions whose clients know no empty event, and so cannot be told to come back later."""


class SessionStreams:
    """The streams of one session, by number."""

    def __init__(self, session_id: str, version: str, logs: StreamLogs | None, hold: Hold) -> None:
        self._session_id = session_id
        self._logs = logs
        self._hold = hold
        self._polls = version not in _WITHOUT_POLLING
        self._numbers = 0 if logs is None else secrets.randbits(40)  # No two processes use the same.
        self._kept: dict[int, asyncio.TimerHandle] = {}
        begin = 1 if logs is None else time.time_ns() // 1_000_000
        self.standing = EventStream(0, primed=self._polls, begin=begin)
        """What is told outside of requests."""
        counted(self.standing, hold)
        self._open: dict[int, EventStream] = {0: self.standing}
        self._followed: dict[int, EventStream] = {}

    def find(self, number: int) -> EventStream | None:
        """The stream of that number, if it is open or kept."""
        return self._open.get(number)

    def new(self) -> EventStream:
        """A stream for a call."""
        self._numbers += 1
        number = self._numbers
        stream = self._open[number] = counted(EventStream(number, primed=self._polls), self._hold)
        stream.is_awaited = True
        stream.on_end = lambda: self._keep(number)
        stream.on_give_up = lambda: self._give_up(number)
        if self._logs is not None:
            self._logs.keep(self._session_id, stream)
        return stream

    async def elsewhere(self, number: int, after: int) -> AsyncGenerator[Events, None] | None:
        """The events of a stream of another process, if it is kept."""
        if self._logs is None or not await self._logs.has(self._session_id, number):
            return None
        return self._logs.follow(self._session_id, number, after)

    @contextmanager
    def followed(self, number: int) -> Generator[EventStream, None, None]:
        """A copy of a stream of another process. One at a time: the next one takes its place."""
        if (other := self._followed.get(number)) is not None:
            other.give_up()
        stream = self._followed[number] = counted(EventStream(number, primed=False), self._hold)
        try:
            yield stream
        finally:
            uncount(stream, self._hold)
            if self._followed.get(number) is stream:
                del self._followed[number]

    def detach(self) -> None:
        """The client reads its stream for changes elsewhere: close the connection that it has here."""
        if self.standing.connection is not None:
            self.standing.connection.leave()

    def _keep(self, number: int) -> None:
        """Keep a stream that has ended for a while."""
        self._kept[number] = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._forget, number)
        while len(self._kept) > _KEPT:
            self._forget(next(iter(self._kept)))
        if number in self._kept and self._open[number].is_empty:
            self._give_up(number)  # What it has ended with was too much.

    def _give_up(self, number: int) -> None:
        """Forget a stream that has ended, here and in the log: a client that comes back is told so."""
        if number in self._kept:
            self._forget(number)
            if self._logs is not None:
                self._logs.forget(self._session_id, number)

    def _forget(self, number: int) -> None:
        self._kept.pop(number).cancel()
        uncount(self._open.pop(number), self._hold)

    def close(self) -> None:
        """The session has ended, and all its streams with it."""
        for stream in self._open.values():
            stream.on_end = None
            stream.end()
            uncount(stream, self._hold)
        for timer in self._kept.values():
            timer.cancel()


def counted(stream: EventStream, hold: Hold) -> EventStream:
    """Count what a stream holds from now on."""
    stream.on_size = functools.partial(hold, stream)
    return stream


def uncount(stream: EventStream, hold: Hold) -> None:
    """It counts no longer."""
    stream.on_size = None
    hold(stream, 0)
