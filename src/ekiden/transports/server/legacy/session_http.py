"""Streamable HTTP as it was in 2025, server side, at the same endpoint as that of 2026.

A client shakes hands, gets a session id, and names it on every request: POST for its messages, GET for
what belongs to no request and for the rest of a stream that broke off, DELETE to end the session.
"""

import asyncio
import functools
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from ekiden.errors import EnvelopeError, ProtocolError, StatusError, StoreUnavailable
from ekiden.signals import SessionsFull
from ekiden.transports.server.legacy.carrying import Carrier, refuse
from ekiden.transports.server.legacy.events import EventStream
from ekiden.transports.server.legacy.kept import Hold, Pools
from ekiden.transports.server.legacy.port import ClientSession, SessionKeeper
from ekiden.transports.server.legacy.post import Post
from ekiden.transports.server.legacy.room import Guest, RequestRoom
from ekiden.transports.server.legacy.streams import SessionStreams, counted, uncount
from ekiden.transports.server.reply import JSON, Receive, Send, respond, takes_stream
from ekiden.transports.server.shares import Shares, client_of
from ekiden.wire import jsonrpc
from ekiden.wire.handshake import Response, is_modern, read_messages
from ekiden.wire.headers import MODERN, VERSION, Headers
from ekiden.wire.incoming import Incoming
from ekiden.wire.json import is_array
from ekiden.wire.jsonrpc import Message
from ekiden.wire.meta import PROTOCOL_VERSION
from ekiden.wire.modern import http_headers, http_status, refusal_status

__all__ = ["Relay", "SessionHTTP"]

_log = logging.getLogger(__name__)

_SESSION: Final = b"mcp-session-id"
_META: Final = PROTOCOL_VERSION.encode()
_RETRY_AFTER: Final = (b"retry-after", b"10")


class Relay(Protocol):
    """Passes requests on to the worker that has their session."""

    def owner(self, session_id: str) -> str | None:
        """The other worker that a session id names, if any."""
        ...

    async def forward(self, owner: str, incoming: Incoming, receive: Receive, send: Send) -> bool:
        """Have the owner answer; False if it is not there any more, and nothing was sent.

        A request that it had when it died gets an error.
        """
        ...


class SessionHTTP:
    """Serves clients of 2025."""

    def __init__(
        self,
        keeper: SessionKeeper,
        bodies: Shares,
        *,
        most_running: int,
        most_kept: int,
        most_unread: int,
        silence_seconds: float,
        stall_seconds: float,
    ) -> None:
        self._keeper = keeper
        self._room = RequestRoom(bodies, most_running)
        self._held = Pools(most_kept, most_unread)
        self._silence_seconds = silence_seconds
        self._carrier = Carrier(silence_seconds=silence_seconds, stall_seconds=stall_seconds)
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
        if _META in body and _names_its_version(incoming):
            return False
        if version.decode("latin-1") in self._keeper.spoken or (self._keeper.stateless and not version):
            return True
        return b'"initialize"' in body and _is_handshake(incoming)

    def allows(self, incoming: Incoming) -> bool:
        """GET and DELETE are 405 for modern clients but valid in a session of 2025."""
        is_method = incoming.refusal is not None and incoming.refusal.status == 405
        return (
            is_method
            and incoming.method in ("GET", "DELETE")
            and _SESSION in incoming.headers
            and not self._keeper.stateless
        )

    # Requests

    async def serve(self, incoming: Incoming, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if incoming.method != "POST":
            incoming.body = b""  # Nobody looks at it, and a stream may last for ever.
        guest = self._room.enter(incoming)
        if guest is None:
            await refuse(send, 503, _TOO_MUCH, _RETRY_AFTER)
            return
        with guest:
            await self._answered(guest, incoming, receive, send)

    async def _answered(self, guest: Guest, incoming: Incoming, receive: Receive, send: Send) -> None:
        try:
            await self._serve(guest, incoming, receive, send)
        except ProtocolError as error:  # The author's `principal` function has refused it.
            await _refuse_message(send, error)
        except StoreUnavailable as error:
            _log.error("A session cannot be looked up: %s", error)
            await refuse(send, 503, "The server's store is not available right now", _RETRY_AFTER)

    async def _serve(self, guest: Guest, incoming: Incoming, receive: Receive, send: Send) -> None:
        headers = incoming.headers
        session_id = headers.get(_SESSION, b"").decode("latin-1").strip()
        version = headers.get(VERSION, b"").strip().decode("latin-1")
        if self.relay is not None and (owner := self.relay.owner(session_id)) is not None:
            guest.arrived()  # It leaves the other process when its client leaves this one.
            if not await self.relay.forward(owner, incoming, receive, send):
                await refuse(send, 404, _GONE)
        elif version and version not in self._keeper.spoken:
            await refuse(send, 400, f"Unsupported protocol version: {version[:50]}")
        elif self._keeper.stateless:
            await self._stateless(guest, version, incoming, receive, send)
        elif not session_id and _is_handshake(incoming):
            await self._open(incoming, send)
        elif not session_id:
            await refuse(send, 400, "Mcp-Session-Id is required: begin with `initialize`")
        elif (session := await self._keeper.find(session_id, incoming)) is None:
            await refuse(send, 404, _GONE)
        else:
            await self._in_session(guest, session, incoming, receive, send)

    async def _stateless(
        self, guest: Guest, version: str, incoming: Incoming, receive: Receive, send: Send
    ) -> None:
        if _is_handshake(incoming):
            await self._open(incoming, send)
        else:
            session = self._keeper.passing(version or "2025-03-26")
            await self._post(guest, session, None, incoming, receive, send)

    async def _open(self, incoming: Incoming, send: Send) -> None:
        message = jsonrpc.read(incoming.value())
        try:
            session, response = await self._keeper.welcome(message, incoming)
        except SessionsFull as full:
            await refuse(send, 503, str(full), _RETRY_AFTER)
        except ProtocolError as error:
            status = error.status if isinstance(error, StatusError) else 200
            body = jsonrpc.error_response(message.id, error)
            await respond(send, status, body, JSON, *http_headers(error))
        else:
            is_named = session is not None and not self._keeper.stateless
            named = ((_SESSION, session.id.encode()),) if session is not None and is_named else ()
            await respond(send, 200, response, JSON, *named)

    async def _in_session(
        self, guest: Guest, session: ClientSession, incoming: Incoming, receive: Receive, send: Send
    ) -> None:
        session.hold()
        try:
            if incoming.method == "POST":
                streams = self._streams_of(session, incoming)
                await self._post(guest, session, streams, incoming, receive, send)
            elif (refused := await session.admits(incoming.method, incoming)) is not None:
                await _refuse_message(send, refused)
            elif incoming.method == "DELETE":
                await session.delete()
                await respond(send, 200, b"")
            else:
                guest.arrived()
                await self._carrier.get(session, self._streams_of(session, incoming), incoming, receive, send)
        finally:
            session.let_go()

    def _streams_of(self, session: ClientSession, incoming: Incoming) -> SessionStreams:
        streams = self._streams.get(session.id)
        if streams is None:
            streams = self._streams[session.id] = SessionStreams(
                session.id,
                session.version,
                session.logs,
                functools.partial(self._held.hold, client_of(incoming)),
            )
            session.on_end.append(functools.partial(self._forget, session.id))
            session.on_detach.append(streams.detach)
        return streams

    def _forget(self, session_id: str) -> None:
        self._streams.pop(session_id).close()

    # Messages of the client

    async def _post(
        self,
        guest: Guest,
        session: ClientSession,
        streams: SessionStreams | None,
        incoming: Incoming,
        receive: Receive,
        send: Send,
    ) -> None:
        headers, client = incoming.headers, guest.client
        try:
            messages, batch = read_messages(incoming.value(), session.version)
        except ProtocolError as error:
            await respond(send, 400, jsonrpc.error_response(None, error), JSON)
            return
        requests = _requests_in(messages)
        if requests and not self._room.calls.take(client, requests):
            await refuse(send, 503, _TOO_MUCH, _RETRY_AFTER)
            return
        incoming.body = b""  # It is read, and its requests may run for long.
        hold = functools.partial(self._held.hold, client)
        post = Post(
            functools.partial(_passing_stream, hold) if streams is None else streams.new,
            hold,
            can_stream=takes_stream(headers.get(b"accept")),
        )
        try:
            broken, refused = await self._take(session, messages, post, incoming)
        finally:
            self._room.calls.give_back(client, requests)  # Those that run are counted by now.
            guest.arrived()
            guest.stay()
            post.when_done(guest.leave)
        if broken is not None and not batch:
            await respond(send, 400, jsonrpc.error_response(broken.request_id, broken), JSON)
        elif refused is not None and post.done and not post.responses:
            await _refuse_message(send, refused)
        elif post.done and not post.responses:
            await respond(send, 202, b"")
        else:
            await self._answer(post, streams, hold, headers, batch, receive, send)

    async def _take(
        self,
        session: ClientSession,
        messages: Sequence[Message | Response | EnvelopeError],
        post: Post,
        incoming: Incoming,
    ) -> tuple[EnvelopeError | None, ProtocolError | None]:
        """Hand on responses and notifications, and begin to answer requests; what is broken, or refused.

        What can fail as a whole, because the store is away, comes first: whatever gets a 503 has not begun.
        """
        broken: EnvelopeError | None = None
        refused: ProtocolError | None = None
        client = client_of(incoming)
        for message in messages:
            if isinstance(message, Response) or (isinstance(message, Message) and message.id is None):
                refused = await session.take(message, incoming) or refused
        for message in messages:
            if isinstance(message, EnvelopeError):
                broken = message
                post.refuse(message)
            elif isinstance(message, Message) and message.id is not None:
                self._follow(post.run(message.id, session.answer(message, incoming, post)), client)
        return broken, refused

    def _follow(self, task: "asyncio.Task[None]", client: str) -> None:
        """Count a request of a client as long as it runs."""
        self._running.add(task)
        self._room.calls.add(client)

        def ended(_: "asyncio.Task[None]") -> None:
            self._running.discard(task)
            self._room.calls.give_back(client)

        task.add_done_callback(ended)

    async def _answer(
        self,
        post: Post,
        streams: SessionStreams | None,
        hold: Hold,
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
                if post.stream is not None:
                    uncount(post.stream, hold)

    async def _send_answer(
        self, post: Post, headers: Headers, batch: bool, receive: Receive, send: Send
    ) -> None:
        if post.can_stream and _prefers_stream(headers):
            post.begin()
        await post.settled(self._silence_seconds)
        if post.stream is None and post.responses:
            body = b"[" + b",".join(post.responses) + b"]" if batch else post.responses[0]
            if post.failure is not None and not batch:
                await respond(send, http_status(post.failure), body, JSON, *http_headers(post.failure))
            else:
                await respond(send, 200, body, JSON)
            return
        stream = post.begin()  # Also for a request that was cancelled: a stream without a response.
        await self._carrier.carry(stream, 0, receive, send)

    async def close(self) -> None:
        """Cancel what still runs."""
        for task in tuple(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running))


_TOO_MUCH: Final = "Too many requests, or too large ones, are under way"
_GONE: Final = "Session not found: begin anew with `initialize`"


def _requests_in(messages: Sequence[Message | Response | EnvelopeError]) -> int:
    return sum(isinstance(message, Message) and message.id is not None for message in messages)


def _passing_stream(hold: Hold) -> EventStream:
    """The stream of a client without a session: it cannot be resumed."""
    stream = counted(EventStream(None, primed=False), hold)
    stream.is_awaited = True
    return stream


def _names_its_version(incoming: Incoming) -> bool:
    try:
        return is_modern(incoming.value()["params"])
    except (ProtocolError, TypeError, KeyError, AttributeError):
        return False


def _is_handshake(incoming: Incoming) -> bool:
    try:
        value: Any = incoming.value()
        return not is_array(value) and value.get("method") == "initialize" and "id" in value
    except (ProtocolError, AttributeError):
        return False


def _prefers_stream(headers: Headers) -> bool:
    """Whether the client takes no JSON, or names it after a stream."""
    before, named, _ = headers.get(b"accept", b"").partition(b"text/event-stream")
    return bool(named) and not any(kind in before for kind in (b"application/json", b"*/*", b"application/*"))


async def _refuse_message(send: Send, error: ProtocolError) -> None:
    """Refuse a message that has no response of its own."""
    body = jsonrpc.error_response(None, error)
    await respond(send, refusal_status(error), body, JSON, *http_headers(error))
