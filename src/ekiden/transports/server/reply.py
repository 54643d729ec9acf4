"""The HTTP response to one request, and what happens while it is being made.

`Reply` is JSON if the request ends before it streams, else SSE. `Attendant` notices that the client
left, and keeps the proxies in between awake.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

from ekiden.errors import InvalidRequest, ProtocolError, TransportError
from ekiden.private_struct import PrivateStruct
from ekiden.rounds.outcome import Dialect, Failed, Outcome
from ekiden.transports.server.started import Started
from ekiden.wire import jsonrpc, sse
from ekiden.wire.headers import Headers
from ekiden.wire.incoming import Refusal
from ekiden.wire.jsonrpc import RequestId
from ekiden.wire.modern import http_headers, http_status

__all__ = [
    "JSON",
    "LARGE",
    "SSE",
    "Attendant",
    "Event",
    "Receive",
    "Reply",
    "Respond",
    "Scope",
    "Send",
    "respond",
    "respond_json",
    "takes_stream",
]

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Respond: TypeAlias = Callable[[int, bytes], None]
"""Sends a whole JSON response, given its status and body."""

_LATE_SECONDS: Final = 0.02
"""Shorter calls are not looked after: most that wait at all wait only for a few passes of the loop."""

LARGE: Final = 64 * 1024
"""A response of more bytes may have to wait for its turn. Those of fewer are not counted."""

_LEFT: Final = 499
"""The status of a request whose client has left. It is sent to nobody, but middleware may log it."""

JSON: Final = (b"content-type", b"application/json")
SSE: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Attendant:
    """Looks after a call that waits: cancels it if the client leaves, and sends keep-alive comments."""

    def __init__(self, receive: Receive, reply: "Reply", silence: float) -> None:
        self._receive = receive
        self._reply = reply
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._gone = False
        self._watching: asyncio.Task[None] | None = None
        self._keep_alive: asyncio.Task[None] | None = None
        reply.on_stalled = self._leave

    async def attend(self, run: Started[Outcome]) -> Outcome | None:
        """The outcome of `run`, or None if the client left first and the call was cancelled."""
        self._timer = self._loop.call_later(_LATE_SECONDS, self._begin)
        try:
            return await run
        except asyncio.CancelledError:
            if not self._gone:
                raise
            if self._task is not None:
                self._task.uncancel()
            return None
        finally:
            self._timer.cancel()
            self._reply.on_stalled = _nothing
            for standing_by in (self._watching, self._keep_alive):
                if standing_by is not None:
                    standing_by.cancel()
            # A task that was cancelled refers to this object: a circle would keep the request's memory until
            # the garbage collector comes, which may be hundreds of large requests later.
            self._watching = self._keep_alive = self._task = None

    def _begin(self) -> None:
        """The call takes long: watch for its client, and keep the connection alive."""
        self._watching = self._loop.create_task(self._watch())
        self._timer = self._loop.call_later(self._silence, self._tick)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        """The client is gone: cancel the call."""
        self._gone = True
        self._reply.end()
        if self._task is not None:
            self._task.cancel()

    def _tick(self) -> None:
        idle = self._loop.time() - self._reply.spoke_at
        if idle >= self._silence:
            idle = 0.0
            if self._keep_alive is not None and not self._keep_alive.done():
                self._timer = self._loop.call_later(self._silence, self._tick)
                return
            self._keep_alive = self._loop.create_task(self._reply.keep_alive())
            idle = 0.0
        self._timer = self._loop.call_later(self._silence - idle, self._tick)


def _nothing() -> None:
    return None


def takes_stream(accept: bytes | None) -> bool:
    """Whether a client with this `Accept` header takes an SSE stream."""
    return accept is None or any(kind in accept for kind in (b"text/event-stream", b"*/*", b"text/*"))


async def respond(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Send a whole response."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def respond_json(send: Send, status: int, body: bytes) -> None:
    """Send a whole JSON response."""
    headers = [(b"content-length", b"%d" % len(body)), JSON]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Counting(Protocol):
    """Whoever counts what large responses have."""

    def spelled(self, size: int) -> None:
        """One has so many bytes."""
        ...


class Reply(PrivateStruct):
    """The response to one request. Implements `ekiden.transports.server.port.Stream`."""

    _send: Send
    _headers: Headers
    _stall_seconds: float
    _respond: Respond | None = None
    _large: Counting | None = None
    """Told of a large response."""
    _writing: asyncio.Lock | None = None
    _streaming: bool = False
    _ended: bool = False
    on_stalled: Callable[[], None] = _nothing
    spoke_at: float = -1e9
    """When the stream last carried anything, by the loop's clock."""

    @property
    def can_notify(self) -> bool:
        """Whether the client takes a stream, and still waits for its answer."""
        if self._ended:
            return False
        return takes_stream(self._headers.get(b"accept"))

    @property
    def has_begun(self) -> bool:
        """Whether a stream has begun: then the response has its status already."""
        return self._streaming

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification; a client that accepts no stream, or has its answer, does without."""
        if self.can_notify:
            await self._stream(sse.event(jsonrpc.notification(method, params)))
        else:
            await asyncio.sleep(0)

    async def keep_alive(self) -> None:
        """Send a keep-alive comment. A disconnected client is ignored; `_watch` deals with it."""
        if self.can_notify:
            with contextlib.suppress(TransportError):
                await self._stream(sse.KEEP_ALIVE)

    async def _stream(self, data: bytes) -> None:
        if self._writing is None:
            self._writing = asyncio.Lock()
        try:
            async with asyncio.timeout(self._stall_seconds), self._writing:
                if not self._streaming:
                    await self._send({"type": "http.response.start", "status": 200, "headers": list(SSE)})
                    self._streaming = True
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            self.on_stalled()
            raise TransportError("The client stopped reading its stream") from None
        self.spoke_at = asyncio.get_running_loop().time()
        # Always one pass of the loop: a handler that only notifies must let others run, and be cancellable,
        # even if its client reads so fast that nothing ever has to wait.
        await asyncio.sleep(0)

    def end(self) -> None:
        """Send nothing more besides the answer."""
        self._ended = True

    def finish(
        self, outcome: Outcome, dialect: Dialect, request_id: RequestId
    ) -> Coroutine[Any, Any, None] | None:
        """Send the response and end. If it could not be sent at once, await what is returned."""
        self._ended = True
        body = outcome.render(dialect, request_id)
        if len(body) > LARGE and self._large is not None:
            self._large.spelled(len(body))
        if self._streaming:
            return self._finish_stream(body)
        if type(outcome) is Failed:
            error = outcome.error
            return respond(self._send, http_status(error), body, JSON, *http_headers(error))
        if self._respond is None:
            return respond_json(self._send, 200, body)
        self._respond(200, body)
        return None

    async def _finish_stream(self, body: bytes) -> None:
        assert self._writing is not None
        async with self._writing:
            # An empty body is not to be sent: the stream ends without a response.
            event = sse.event(body) if body else b""
            del body  # A client may read slowly: one copy is enough.
            await self._send({"type": "http.response.body", "body": event})

    async def to_nobody(self) -> None:
        """End without an answer: the client has left. Middleware around us takes no response for an error."""
        if self._writing is None:  # Else a response has begun, or a client that takes none of it has stalled.
            with contextlib.suppress(OSError):
                await respond(self._send, _LEFT, b"")

    async def error(
        self, dialect: Dialect, request_id: RequestId | None, error: ProtocolError, status: int | None = None
    ) -> None:
        """Answer with an error found before dispatch; by default with the status of its code."""
        status = http_status(error) if status is None else status
        await respond(self._send, status, dialect.error(request_id, error), JSON, *http_headers(error))

    async def accepted(self) -> None:
        """A notification was taken."""
        await respond(self._send, 202, b"")

    async def refuse(self, refusal: Refusal) -> None:
        """Refuse on the level of HTTP."""
        body = jsonrpc.error_response(None, InvalidRequest(refusal.reason))
        extra = (b"allow", b"POST") if refusal.status == 405 else (b"connection", b"close")
        await respond(self._send, refusal.status, body, JSON, extra, *refusal.headers)
