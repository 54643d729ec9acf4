"""Streamable HTTP as it was in 2025, server side, at the same endpoint as that of 2026.

A client shakes hands, gets a session id, and names it on every request: POST for its messages, GET for
what belongs to no request and for the rest of a stream that broke off, DELETE to end the session.
"""

import asyncio
import functools
import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

from ekiden.errors import EnvelopeError, InvalidRequest, ProtocolError, SessionsFull
from ekiden.transports.server.legacy.events import EventStream, StreamResponse
from ekiden.transports.server.legacy.port import ClientSession, SessionKeeper
from ekiden.transports.server.legacy.post import Post
from ekiden.transports.server.legacy.streams import SessionStreams
from ekiden.transports.server.reply import JSON, SSE, Incoming, Receive, Send, respond, takes_stream
from ekiden.wire import jsonrpc
from ekiden.wire.handshake import Response, is_modern, read_incoming
from ekiden.wire.headers import MODERN, VERSION, Headers
from ekiden.wire.json import decode, is_array
from ekiden.wire.jsonrpc import Message
from ekiden.wire.meta import PROTOCOL_VERSION

__all__ = ["Relay", "SessionHTTP"]

_SESSION: Final = b"mcp-session-id"
_META: Final = PROTOCOL_VERSION.encode()
_EVENT_ID: Final = re.compile(rb"(\d{1,9})_(\d{1,12})")


class Relay(Protocol):
    """Passes requests on to the worker that has their session."""

    def owner(self, session_id: str) -> str | None:
        """The other worker that a session id names, if any."""
        ...

    async def forward(self, owner: str, incoming: Incoming, receive: Receive, send: Send) -> bool:
        """Have the owner answer; False if it is not there any more, and nothing was sent."""
        ...


class SessionHTTP:
    """Serves clients of 2025."""

    def __init__(self, keeper: SessionKeeper, *, silence_seconds: float, stall_seconds: float) -> None:
        self._keeper = keeper
        self._silence_seconds = silence_seconds
        self._stall_seconds = stall_seconds
        self._streams: dict[str, SessionStreams] = {}
        self._running: set[asyncio.Task[None]] = set()
        self.relay: Relay | None = None

    # Which requests are of 2025

    def takes(self, incoming: Incoming) -> bool:
        """Whether a POST is of a client of 2025. One that names its version in `_meta` is of 2026."""
        headers, body = incoming.headers, incoming.body
        version = headers.get(VERSION, b"").strip()
        if version == MODERN:
            return False
        if _SESSION in headers:
            return True
        if _META in body and _names_its_version(body):
            return False
        if version.decode("latin-1") in self._keeper.spoken or (self._keeper.stateless and not version):
            return True
        return b'"initialize"' in body and _is_handshake(incoming)

    def allows(self, incoming: Incoming) -> bool:
        """GET and DELETE are 405 for modern clients but valid in a session of 2025."""
        is_method = incoming.refusal is not None and incoming.refusal[0] == 405
        return (
            is_method
            and incoming.method in ("GET", "DELETE")
            and _SESSION in incoming.headers
            and not self._keeper.stateless
        )

    # Requests

    async def serve(self, incoming: Incoming, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        try:
            await self._serve(incoming, receive, send)
        except ProtocolError as error:  # The author's `principal` function has refused it.
            await respond(send, 400, jsonrpc.error_response(None, error), JSON)

    async def _serve(self, incoming: Incoming, receive: Receive, send: Send) -> None:
        headers = incoming.headers
        session_id = headers.get(_SESSION, b"").decode("latin-1").strip()
        version = headers.get(VERSION, b"").strip().decode("latin-1")
        if self.relay is not None and (owner := self.relay.owner(session_id)) is not None:
            if not await self.relay.forward(owner, incoming, receive, send):
                await _refuse(send, 404, _GONE)
        elif version and version not in self._keeper.spoken:
            await _refuse(send, 400, f"Unsupported protocol version: {version[:50]}")
        elif self._keeper.stateless:
            await self._stateless(version, incoming, receive, send)
        elif not session_id and _is_handshake(incoming):
            await self._open(incoming, send)
        elif not session_id:
            await _refuse(send, 400, "Mcp-Session-Id is required: begin with `initialize`")
        elif (session := self._keeper.find(session_id, headers)) is None:
            await _refuse(send, 404, _GONE)
        else:
            await self._in_session(session, incoming, receive, send)

    async def _stateless(self, version: str, incoming: Incoming, receive: Receive, send: Send) -> None:
        if _is_handshake(incoming):
            await self._open(incoming, send)
        else:
            session = self._keeper.passing(version or "2025-03-26")
            await self._post(session, None, incoming, receive, send)

    async def _open(self, incoming: Incoming, send: Send) -> None:
        message = jsonrpc.read(decode(incoming.body))
        try:
            session, response = self._keeper.open(message, incoming.headers)
        except SessionsFull as full:
            await _refuse(send, 503, str(full), (b"retry-after", b"10"))
        except ProtocolError as error:
            await respond(send, 200, jsonrpc.error_response(message.id, error), JSON)
        else:
            named = () if self._keeper.stateless else ((_SESSION, session.id.encode()),)
            await respond(send, 200, response, JSON, *named)

    async def _in_session(
        self, session: ClientSession, incoming: Incoming, receive: Receive, send: Send
    ) -> None:
        session.hold()
        try:
            if incoming.method == "DELETE":
                session.end()
                await respond(send, 200, b"")
            elif incoming.method == "GET":
                await self._get(session, incoming.headers, receive, send)
            else:
                await self._post(session, self._streams_of(session), incoming, receive, send)
        finally:
            session.let_go()

    def _streams_of(self, session: ClientSession) -> SessionStreams:
        streams = self._streams.get(session.id)
        if streams is None:
            streams = self._streams[session.id] = SessionStreams(session.version)
            session.on_end.append(functools.partial(self._forget, session.id))
        return streams

    def _forget(self, session_id: str) -> None:
        self._streams.pop(session_id).close()

    # Messages of the client

    async def _post(
        self,
        session: ClientSession,
        streams: SessionStreams | None,
        incoming: Incoming,
        receive: Receive,
        send: Send,
    ) -> None:
        headers = incoming.headers
        try:
            messages, batch = read_incoming(incoming.body, session.version)
        except ProtocolError as error:
            await respond(send, 400, jsonrpc.error_response(None, error), JSON)
            return
        post = Post(
            _passing_stream if streams is None else streams.new,
            can_stream=takes_stream(headers.get(b"accept")),
        )
        broken = self._take(session, messages, post, headers)
        if broken is not None and not batch:
            await respond(send, 400, jsonrpc.error_response(broken.request_id, broken), JSON)
        elif post.done and not post.responses:
            await respond(send, 202, b"")
        else:
            await self._answer(post, streams, headers, batch, receive, send)

    def _take(
        self,
        session: ClientSession,
        messages: Sequence[Message | Response | EnvelopeError],
        post: Post,
        headers: Headers,
    ) -> EnvelopeError | None:
        """Begin to answer requests, and hand on responses and notifications."""
        broken: EnvelopeError | None = None
        for message in messages:
            if isinstance(message, EnvelopeError):
                broken = message
                post.responses.append(jsonrpc.error_response(message.request_id, message))
            elif isinstance(message, Response):
                session.responded(message)
            elif message.id is None:
                session.notified(message)
            else:
                task = post.run(session.answer(message, headers, post))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        return broken

    async def _answer(
        self,
        post: Post,
        streams: SessionStreams | None,
        headers: Headers,
        batch: bool,
        receive: Receive,
        send: Send,
    ) -> None:
        try:
            await self._send_answer(post, headers, batch, receive, send)
        finally:
            if streams is None:
                post.cancel()  # Without a session the client cannot come back for the rest.

    async def _send_answer(
        self, post: Post, headers: Headers, batch: bool, receive: Receive, send: Send
    ) -> None:
        if post.can_stream and _prefers_stream(headers):
            post.begin()
        await post.settled(self._silence_seconds)
        if post.stream is None and post.responses:
            body = b"[" + b",".join(post.responses) + b"]" if batch else post.responses[0]
            await respond(send, 200, body, JSON)
            return
        stream = post.begin()  # Also for a request that was cancelled: a stream without a response.
        await self._carry(stream, 0, receive, send)

    async def _carry(self, stream: EventStream, after: int, receive: Receive, send: Send) -> None:
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

    # Streams that the client asks for

    async def _get(self, session: ClientSession, headers: Headers, receive: Receive, send: Send) -> None:
        if not takes_stream(headers.get(b"accept")):
            await _refuse(send, 406, "Not acceptable: a stream needs `Accept: text/event-stream`")
            return
        streams = self._streams_of(session)
        stream, after = streams.standing, 0
        if (last := headers.get(b"last-event-id")) is not None:
            place = _EVENT_ID.fullmatch(last.strip())
            found = None if place is None else streams.find(int(place[1]))
            if place is None or found is None:
                await _refuse(send, 400, "Unknown Last-Event-ID: this stream has ended or is not kept")
                return
            stream, after = found, int(place[2])
        elif stream.connection is not None:
            await _refuse(send, 409, "Conflict: this session has a stream already")
            return
        if stream is streams.standing:
            await self._listen(session, stream, after, receive, send)
        else:
            await self._carry(stream, after, receive, send)

    async def _listen(
        self, session: ClientSession, stream: EventStream, after: int, receive: Receive, send: Send
    ) -> None:
        async def feed() -> None:
            try:
                async for message in session.changes():
                    stream.append(message)
                    await stream.has_room()
                stream.end()
            except SessionsFull:
                stream.end()

        if stream.connection is not None:
            # The client has come back before its old connection was seen to be lost.
            stream.connection.leave()
            await stream.released()
        feeding = asyncio.get_running_loop().create_task(feed())
        try:
            await self._carry(stream, after, receive, send)
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})

    async def close(self) -> None:
        """Cancel what still runs."""
        for task in tuple(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running))


_GONE: Final = "Session not found: begin anew with `initialize`"


def _passing_stream() -> EventStream:
    """The stream of a client without a session: it cannot be resumed."""
    return EventStream(None, primed=False)


def _names_its_version(body: bytes) -> bool:
    try:
        value: Any = decode(body)
        return is_modern(value["params"])
    except (ProtocolError, TypeError, KeyError, AttributeError):
        return False


def _is_handshake(incoming: Incoming) -> bool:
    try:
        value: Any = decode(incoming.body)
        return not is_array(value) and value.get("method") == "initialize" and "id" in value
    except (ProtocolError, AttributeError):
        return False


def _prefers_stream(headers: Headers) -> bool:
    """Whether the client takes no JSON, or names it after a stream."""
    before, named, _ = headers.get(b"accept", b"").partition(b"text/event-stream")
    return bool(named) and not any(kind in before for kind in (b"application/json", b"*/*", b"application/*"))


async def _refuse(send: Send, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
    body = jsonrpc.error_response(None, InvalidRequest(reason))
    await respond(send, status, body, JSON, *headers)
