"""Streams on their way to clients of 2025: those of calls, the one for changes, and those of other
processes."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Final

from ekiden.errors import InvalidRequest, StoreUnavailable
from ekiden.sessions.logs import Events
from ekiden.signals import SessionsFull
from ekiden.transports.server.legacy.events import EventStream, StreamResponse
from ekiden.transports.server.legacy.port import ClientSession
from ekiden.transports.server.legacy.streams import SessionStreams
from ekiden.transports.server.reply import JSON, SSE, Event, Receive, Send, respond, takes_stream
from ekiden.wire import jsonrpc
from ekiden.wire.incoming import Incoming
from ekiden.wire.principal import Principal

__all__ = ["Carrier", "refuse"]

_log = logging.getLogger(__name__)

_EVENT_ID: Final = re.compile(rb"(\d{1,15})_(\d{1,15})")
_LEFT: Final[Event] = {"type": "http.disconnect"}


class Carrier:
    """Carries streams over HTTP responses."""

    def __init__(self, *, silence_seconds: float, stall_seconds: float) -> None:
        self._silence_seconds = silence_seconds
        self._stall_seconds = stall_seconds

    async def carry(self, stream: EventStream, after: int, receive: Receive, send: Send) -> None:
        """Answer with a stream, from one event on."""
        await send({"type": "http.response.start", "status": 200, "headers": list(SSE)})
        await send({"type": "http.response.body", "body": b"", "more_body": True})  # The head goes now.
        connection = StreamResponse(
            stream,
            send,
            after=after,
            silence_seconds=self._silence_seconds,
            stall_seconds=self._stall_seconds,
        )
        await connection.run(receive)

    async def get(
        self,
        session: ClientSession,
        streams: SessionStreams,
        incoming: Incoming,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a GET: the stream for changes, or the rest of a stream that broke off.

        The connection ends with the access token: its client comes back with another.
        """
        if incoming.authority is None:
            await self._get(session, streams, incoming, receive, send)
            return
        line = _Line(receive)
        watching = incoming.authority.watch(incoming, line.cut)
        try:
            await self._get(session, streams, incoming, line.receive, send)
        finally:
            watching.cancel()

    async def _get(
        self,
        session: ClientSession,
        streams: SessionStreams,
        incoming: Incoming,
        receive: Receive,
        send: Send,
    ) -> None:
        headers = incoming.headers
        last = headers.get(b"last-event-id")
        if not takes_stream(headers.get(b"accept")):
            await refuse(send, 406, "Not acceptable: a stream needs `Accept: text/event-stream`")
        elif last is not None:
            place = _EVENT_ID.fullmatch(last.strip())
            number, after = (-1, 0) if place is None else (int(place[1]), int(place[2]))
            await self._resume(session, streams, number, after, incoming.principal, receive, send)
        elif streams.standing.connection is not None:
            await refuse(send, 409, "Conflict: this session has a stream already")
        else:
            await self._listen(session, streams.standing, 0, incoming.principal, receive, send)

    async def _resume(
        self,
        session: ClientSession,
        streams: SessionStreams,
        number: int,
        after: int,
        reader: Principal | None,
        receive: Receive,
        send: Send,
    ) -> None:
        stream = streams.find(number)
        if stream is not None and stream is streams.standing:
            if session.logs is not None and not stream.has_numbered(after):
                after = stream.last  # It comes from another process: what it missed counts as changed.
            await self._listen(session, stream, after, reader, receive, send)
        elif stream is not None:
            await self.carry(stream, after, receive, send)
        elif (events := await streams.elsewhere(number, after)) is not None:
            with streams.followed(number) as copy:
                await self._follow(copy, after, events, receive, send)
        else:
            await refuse(send, 400, "Unknown Last-Event-ID: this stream has ended or is not kept")

    async def _follow(
        self,
        stream: EventStream,
        after: int,
        events: AsyncGenerator[Events, None],
        receive: Receive,
        send: Send,
    ) -> None:
        """Carry a stream whose requests run in another process, or ran there."""

        async def feed() -> None:
            async with contextlib.aclosing(events):
                async for some in events:
                    stream.restore(some)
                    await stream.has_room()
            stream.end()

        await self._carry_fed(stream, after, feed(), receive, send)

    async def _carry_fed(
        self,
        stream: EventStream,
        after: int,
        feed: Coroutine[Any, Any, None],
        receive: Receive,
        send: Send,
    ) -> None:
        feeding = asyncio.get_running_loop().create_task(feed)
        try:
            await self.carry(stream, after, receive, send)
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})

    async def _listen(
        self,
        session: ClientSession,
        stream: EventStream,
        after: int,
        reader: Principal | None,
        receive: Receive,
        send: Send,
    ) -> None:
        async def feed() -> None:
            try:
                async for message in session.changes(reader):
                    stream.append(message)
                    await stream.has_room()
                stream.end()
            except SessionsFull:
                stream.end()
            except StoreUnavailable as error:
                _log.error("A stream for changes is closed: %s", error)
                if stream.connection is not None:
                    stream.connection.leave()

        if stream.connection is not None:
            # The client has come back before its old connection was seen to be lost.
            stream.connection.leave()
            await stream.released()
        await self._carry_fed(stream, after, feed(), receive, send)


class _Line:
    """What comes of a client, which is taken to have left once its line is cut."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_cut = False
        self._waiting: asyncio.Timeout | None = None

    def cut(self) -> None:
        self._is_cut = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def receive(self) -> Event:
        if self._is_cut:
            return _LEFT
        try:
            async with asyncio.timeout(None) as self._waiting:
                return await self._receive()
        except TimeoutError:
            return _LEFT
        finally:
            self._waiting = None


async def refuse(send: Send, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
    """Refuse a request: the reason as a JSON-RPC error."""
    body = jsonrpc.error_response(None, InvalidRequest(reason))
    await respond(send, status, body, JSON, *headers)
