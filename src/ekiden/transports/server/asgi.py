"""Streamable HTTP, server side, as an ASGI application (basic/transports: Streamable HTTP).

Every message is a POST of its own. A request is answered with plain JSON, or with an SSE
stream if the handler sends notifications or takes more than some seconds. When the
client goes away, the request is cancelled.
"""

import asyncio
import logging
from collections.abc import Coroutine
from types import CoroutineType
from typing import Any, Final

import msgspec

from ekiden.errors import EnvelopeError, ProtocolError, UsageError
from ekiden.rounds.handler_task import one_pass
from ekiden.rounds.outcome import Outcome
from ekiden.transports.server.budget import SMALL, BodyTurns, weight_of
from ekiden.transports.server.cors import Cors
from ekiden.transports.server.gate import Gate
from ekiden.transports.server.guard import Guard, sent_twice
from ekiden.transports.server.large.results import MOST
from ekiden.transports.server.legacy.session_http import SessionHTTP
from ekiden.transports.server.port import Endpoint
from ekiden.transports.server.reply import (
    Attendant,
    Event,
    Receive,
    Reply,
    Respond,
    Scope,
    Send,
)
from ekiden.transports.server.shares import Shares, client_of
from ekiden.transports.server.started import Started
from ekiden.wire import jsonrpc
from ekiden.wire.headers import MODERN, VERSION
from ekiden.wire.incoming import ROUTED, Incoming, Refusal
from ekiden.wire.json import MAX_VALUES
from ekiden.wire.jsonrpc import Message, RequestId
from ekiden.wire.modern import accept, refusal_status

__all__ = ["HttpLimits", "StreamableHTTP"]

_log = logging.getLogger(__name__)


_COUNTED: Final = 64 * 1024
"""A body that takes more bytes in memory takes them of the budget while it is answered."""
_TOO_MUCH: Final = Refusal(503, "Too many large requests are under way", ((b"retry-after", b"5"),))
_LARGE: Final = 256 * 1024
"""Between reading a body of more bytes and answering it, others get their turn."""


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may take of a server."""

    body: int = 4 * 1024 * 1024
    """Bytes of a request body; a larger one is 413. Tool arguments are text, not uploads."""
    bodies: int = 256 * 1024 * 1024
    """Bytes of bodies that are on their way, wait for their turn, or are being answered, on all connections
    of one process. One more large body is 503 with `Retry-After`; requests of less than 64 KiB are not
    counted. Those that wait behind another one of their connection, and those of clients of 2025, count with
    their heads, from 4 KiB on. While it is answered, a body with letters beyond
    ASCII counts three times, and one with an emoji five times, and each value counts 128 bytes besides: so
    much they may take in memory. A quarter
    more is there for clients that hold almost none of it, so that one client keeps nobody else out."""
    running_2025: int = 10_000
    """Requests of clients of 2025 that run at once in one process; one more is 503 with `Retry-After`. As
    many again may be looked up in the store before they run, or be answers. They go on when their client
    leaves, each with some 20 KB beside what counts among `bodies`, so that one client could begin any number.
    A quarter more may run of clients that have almost none, so that one client keeps nobody else out."""
    kept_2025: int = 64 * 1024 * 1024
    """Bytes of streams that one process keeps, in memory and in the store, for clients of 2025 that may come
    back for them. Above it, those of the client that has most are given up, the oldest first. What a client
    is reading counts as `unread`."""
    values: int = MAX_VALUES
    """Values in a request body: numbers, texts, lists, objects. By the time its tool is called, each has cost
    about a microsecond of the event loop and a hundred bytes, so others never wait long for one body. Bodies
    of more than 4 KiB that come together are read a few at a time. Numbers that are slow to read, with twenty
    digits or an exponent of three, count sixteen times."""
    body_seconds: float = 30.0
    """How long a body may take to arrive; then 408."""
    silence_seconds: float = 10.0
    """A call or stream that was silent this long gets a keep-alive comment. Proxies cut at 30 or 60."""
    stall_seconds: float = 60.0
    """A client that takes none of a stream for this long is taken to be gone."""
    keep_alive_seconds: float = 75.0
    """How long a connection without a request stays open. Longer than clients and proxies keep theirs, which
    is mostly 60 at most: a request that is sent just when the server closes is lost. Where the server is
    mounted, whoever listens decides."""
    unread: int = 256 * 1024 * 1024
    """Bytes of responses that clients have not read yet, on all connections of one process; those of less
    than 64 KiB are not counted. Above it, a connection is cut of the address that has most of them. Where
    the server is mounted, whoever listens decides. As many bytes may wait in streams of clients of 2025,
    and in batches until their last response is there, mounted or not; above it, they are given up of the
    client that has most. Those of one batch are given up when they have more than 32 MiB. Results of more
    than 64 KiB that end at once are made and sent one after another: as many bytes, and 256 MiB at least,
    may wait for their turn. While a part of that waits, no handler begins that has returned as much
    before. What ends together all the same and is too much is answered with error -32603, but never a
    result that waits alone."""
    connections: int | None = None
    """Connections that one process has open, also those whose TLS handshake is not done. For one more, one
    that waits for its client is closed; if there is none, it is answered with 503 and `Retry-After`. By
    default almost as many as the process may have file descriptors. Where the server is mounted, whoever
    listens decides."""
    connections_per_address: int | None = None
    """The same for one IP address (of IPv6, one network), so that one client cannot take all of them. Not
    behind a proxy: there all connections come from the proxy."""


class StreamableHTTP:
    """The ASGI application. With `path` None it answers at every path: a router has chosen it already."""

    def __init__(
        self, endpoint: Endpoint, *, path: str | None = "/mcp", guard: Guard, limits: HttpLimits
    ) -> None:
        self.endpoint = endpoint
        self._dialect = endpoint.dialect
        self.limits = limits
        self.bodies = Shares(limits.bodies)
        self._turns = BodyTurns()
        endpoint.large.limit(max(limits.unread, MOST), endpoint.dialect.most_bytes)
        self.gate = Gate(path, guard, limits.body)
        """Sees every request before its body is read."""
        if guard.origins:
            self.gate.cors = Cors(any_origin="*" in guard.origins)
        self.legacy = SessionHTTP(
            endpoint.sessions,
            self.bodies,
            most_running=limits.running_2025,
            most_kept=limits.kept_2025,
            most_unread=limits.unread,
            silence_seconds=limits.silence_seconds,
            stall_seconds=limits.stall_seconds,
        )
        """Serves the clients of 2025."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        self.endpoint.forget_a_closed_loop()  # Who mounts a server may never tell it that a loop has ended.
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(pairs)
        gate, limits = self.gate, self.limits
        method, path, peer = scope["method"], scope["path"], scope.get("client")
        incoming = Incoming(
            method,
            path,
            headers,
            gate.refusal(method, path, scope.get("root_path", ""), headers),
            b"",
            None if len(headers) == len(pairs) else pairs,
            None if peer is None else peer[0],
            limits.values,
            scope.get("query_string", b""),
            scope,
        )
        if (gate.doorkeeper is not None or gate.proxies is not None) and (
            admission := gate.admit(incoming)
        ) is not None:
            incoming.refusal = await admission
        if incoming.refusal is None or incoming.refusal is ROUTED:
            first = _read_at_once(receive, incoming)
            if first is not None and not await self._slow_body(first, receive, incoming):
                await Reply(send, headers, limits.stall_seconds).to_nobody()
                return
            if len(incoming.body) > limits.body:
                incoming.refusal = Refusal(413, f"Body too large: the limit is {limits.body} bytes")
        if len(incoming.body) <= SMALL:
            await self.exchange(incoming, receive, send)
        else:
            await self.exchange_large(incoming, receive, send)

    async def exchange_large(
        self, incoming: Incoming, receive: Receive, send: Send, respond: Respond | None = None
    ) -> None:
        """Answer a request with a body that may be large.

        It waits for its turn, and counts until it is answered.
        """
        client, size = client_of(incoming), len(incoming.body)
        held = size if size > _COUNTED else 0
        if not self.bodies.take(client, held):
            await self._refuse(incoming, send)
            return
        try:
            if (turn := self._turns.take(client, size)) is not None:
                await turn
            self.bodies.give_back(client, held)
            held = self._weight(incoming)
            if not self.bodies.take(client, held):
                held = 0
                await self._refuse(incoming, send)
                return
            await self.exchange(incoming, receive, send, respond)
        finally:
            self.bodies.give_back(client, held)

    def _weight(self, incoming: Incoming) -> int:
        """What a body counts while it is answered."""
        held = weight_of(incoming.body, incoming.most_values)
        # Those of 2025 may outlive this request: `SessionHTTP` counts them.
        if held <= _COUNTED or (incoming.refusal is not ROUTED and self.legacy.takes(incoming)):
            return 0
        return held

    async def _refuse(self, incoming: Incoming, send: Send) -> None:
        reply = Reply(send, incoming.headers, self.limits.stall_seconds)
        await reply.refuse(self.gate.readable(_TOO_MUCH, incoming.headers))

    async def exchange(
        self, incoming: Incoming, receive: Receive, send: Send, respond: Respond | None = None
    ) -> None:
        """Answer one request whose body is here. `respond` sends a plain JSON response synchronously."""
        headers = incoming.headers
        if self.gate.cors is not None:
            send, respond = self._for_pages(self.gate.cors, incoming, send, respond)
        large = self.endpoint.large
        reply = Reply(send, headers, self.limits.stall_seconds, respond, large)
        if (
            incoming.refusal is not None or incoming.repeating is not None or headers.get(VERSION) != MODERN
        ) and await self._is_answered(incoming, receive, send, reply):
            return
        request_id: RequestId | None = None
        try:
            message = jsonrpc.read(incoming.value())
            if len(incoming.body) > SMALL:
                await _let_go(incoming, message)
            if (request_id := message.id) is None:
                await self._notified(message, incoming, reply)
                return
            request = accept(message, headers, self.endpoint.methods, incoming)
        except ProtocolError as error:
            broken = error.request_id if isinstance(error, EnvelopeError) else request_id
            await reply.error(self._dialect, broken, error)
            return
        outcome: Outcome | None
        answer = self.endpoint.begin(request, reply)
        if isinstance(answer, CoroutineType):
            try:
                awaited = answer.send(None)
                await one_pass()  # A handler that has a task of its own may begin and end meanwhile.
                if awaited is None or (isinstance(awaited, asyncio.Future) and awaited.done()):
                    awaited = answer.send(None)
                outcome = await self._attend(Started(answer, awaited), receive, reply)
            except StopIteration as answered:  # By `send`: what is awaited cannot raise it.
                outcome = answered.value
        else:
            outcome = answer  # type: ignore[assignment]  # There is no other kind of coroutine.
        sending = (
            self._in_turn(outcome, incoming, reply, request_id)
            if outcome is None or large.busy
            else reply.finish(outcome, self._dialect, request_id)
        )
        del outcome  # It may have to wait, and may be given up meanwhile.
        if sending is not None:
            await sending

    async def _in_turn(
        self, outcome: Outcome | None, incoming: Incoming, reply: Reply, request_id: RequestId
    ) -> None:
        """Send a response that may be large, when its turn has come; none, if its client has left."""
        if outcome is None:
            await reply.to_nobody()
            return
        reply.end()
        admitting = self.endpoint.large.admit(outcome, client_of(incoming))
        del outcome
        outcome = await admitting
        sending = reply.finish(outcome, self._dialect, request_id)
        del outcome, admitting  # While its client reads, it is there as bytes only.
        if sending is not None:
            await sending

    def _attend(
        self, running: Started[Outcome], receive: Receive, reply: Reply
    ) -> Coroutine[Any, Any, Outcome | None]:
        """Look after a call that takes longer: its outcome, or None if its client has left."""
        return Attendant(receive, reply, self.limits.silence_seconds).attend(running)

    def _for_pages(
        self, cors: Cors, incoming: Incoming, send: Send, respond: Respond | None
    ) -> tuple[Send, Respond | None]:
        """How to answer a request that a page may have sent: with headers that let it read the response."""
        page = self.gate.calling_page(incoming.headers)
        return (send, respond) if page is None else (cors.send(send, page), None)

    async def _is_answered(self, incoming: Incoming, receive: Receive, send: Send, reply: Reply) -> bool:
        """Answer a request that is not simply a message for the endpoint; False if it is one after all."""
        if incoming.refusal is not None and incoming.admission is not None:
            incoming.refusal = await incoming.admission
        if incoming.repeating is not None and (name := sent_twice(incoming.repeating)) is not None:
            incoming.refusal = Refusal(400, f"Bad request: {name} is sent more than once")
        refusal = incoming.refusal
        if refusal is None:
            if incoming.headers.get(VERSION) == MODERN or not self.legacy.takes(incoming):
                return False
            await self.legacy.serve(incoming, receive, send)
        elif refusal is ROUTED:
            root = "" if incoming.asgi is None else incoming.asgi.get("root_path", "")
            await self.gate.route_of(incoming, root)(incoming, receive, send)
        elif self.legacy.allows(incoming):
            await self.legacy.serve(incoming, receive, send)
        else:
            await reply.refuse(refusal)
        return True

    async def _notified(self, message: Message, incoming: Incoming, reply: Reply) -> None:
        if self.endpoint.is_watched:
            refused = await self.endpoint.notified(message, incoming, None)
            if refused is not None:
                await reply.error(self._dialect, None, refused, refusal_status(refused))
                return
        await reply.accepted()

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.startup":
                try:
                    await self.endpoint.start()
                except Exception as error:
                    if isinstance(error, UsageError):
                        _log.error("The server cannot start: %s", error)
                    else:
                        _log.exception("The lifespan failed to start")
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.endpoint.stop()
                await self.legacy.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _slow_body(self, first: Event | Started[Event], receive: Receive, incoming: Incoming) -> bool:
        """Read a body that was not whole at once, or all that fits its limit; False if the client left."""
        pieces = bytearray()  # Not a list of them: a piece of two bytes would take as much as fifty.
        client, held = client_of(incoming), 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                event = await first if isinstance(first, Started) else first
                while event["type"] == "http.request":
                    pieces += event.get("body", b"")
                    if (grown := len(pieces) - held) > _COUNTED:
                        if not self.bodies.take(client, grown):
                            incoming.refusal = _TOO_MUCH
                            return True
                        held += grown
                    if len(pieces) > self.limits.body or not event.get("more_body"):
                        incoming.body = bytes(pieces)
                        return True
                    event = await receive()
        except TimeoutError:
            incoming.refusal = Refusal(408, "The request body took too long")
            return True
        finally:
            self.bodies.give_back(client, held)
        return False


def _read_at_once(receive: Receive, incoming: Incoming) -> Event | Started[Event] | None:
    """Read a body that is here as a whole; else return what has come so far."""
    reading: Any = receive()
    if reading.__class__ is not CoroutineType:  # A coroutine, as most servers give, can be begun itself.
        reading = reading.__await__()
    try:
        return Started(reading, reading.send(None))
    except StopIteration as read:
        event: Event = read.value
    if event["type"] != "http.request" or event.get("more_body"):
        return event
    incoming.body = event.get("body", b"")
    return None


async def _let_go(incoming: Incoming, message: Message) -> None:
    """Forget the text of a message, and let others have their turn if it was large."""
    size = len(incoming.body)
    incoming.let_go({"jsonrpc": "2.0", "id": message.id, "method": message.method, "params": message.params})
    if size > _LARGE:
        await asyncio.sleep(0)
