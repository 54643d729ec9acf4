"""Streamable HTTP, server side, as an ASGI application (basic/transports: Streamable HTTP).

Every message is a POST of its own. A request is answered with plain JSON if nothing else was to
be said, with an SSE stream if the handler notified or has been silent for some seconds. When the
client goes away, the request is cancelled.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec

from ekiden.errors import InvalidRequest, ProtocolError, TransportError
from ekiden.rounds.outcome import Failed, Outcome
from ekiden.transports.eager import Started
from ekiden.transports.guard import Guard
from ekiden.transports.port import Endpoint
from ekiden.wire import jsonrpc, sse
from ekiden.wire.headers import Headers, reject_duplicates
from ekiden.wire.jsonrpc import EnvelopeError, RequestId
from ekiden.wire.modern import Request, accept, http_status

__all__ = ["Limits", "StreamableHTTP"]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger("ekiden.http")

_JSON: Final = (b"content-type", b"application/json")
_SSE_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may take of a server."""

    body: int = 4 * 1024 * 1024
    """Bytes of a request body; a larger one is 413. Tool arguments are text, not uploads."""
    body_seconds: float = 30.0
    """How long a body may take to arrive; then 408."""
    silence_seconds: float = 10.0
    """A call or stream that was silent this long gets a keep-alive comment. Proxies cut at 30 or 60."""
    stall_seconds: float = 60.0
    """A client that takes none of a stream for this long is taken to be gone."""


class StreamableHTTP:
    """The ASGI application. `path` None answers at every path: whoever mounts it has matched already."""

    def __init__(
        self, endpoint: Endpoint, *, path: str | None = "/mcp", guard: Guard, limits: Limits
    ) -> None:
        self.endpoint = endpoint
        self._path = path
        self._guard = guard
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "lifespan":
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
                    _log.exception("The lifespan failed to start")
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.endpoint.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(pairs)
        reply = _Reply(send, self._limits.stall_seconds)
        if (refusal := self._refusal(scope, headers)) is not None:
            await reply.refuse(*refusal)
            return
        body = await self._body(headers, receive, reply)
        if body is None:
            return
        request_id: RequestId | None = None
        try:
            message = jsonrpc.parse(body)
            if (request_id := message.id) is None:
                await reply.accepted()
                return
            if len(headers) != len(pairs):
                reject_duplicates(pairs)
            request = accept(message, headers, self.endpoint.methods)
        except ProtocolError as error:
            if isinstance(error, EnvelopeError):
                request_id = error.request_id
            await reply.error(self.endpoint, request_id, error)
            return
        await self._answer(request, receive, reply)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Why this request is refused before its body is read."""
        if not self._guard.allows_host(headers.get(b"host")):
            return 421, "Host not allowed: add it to `allowed_hosts` to serve it"
        origin = headers.get(b"origin")
        if origin is not None and not self._guard.allows_origin(origin):
            return 403, "Origin not allowed: add it to `allowed_origins` to serve it"
        if self._path is not None and not self._is_here(scope):
            return 404, f"Not found: the MCP endpoint is {self._path}"
        if scope["method"] != "POST":
            return 405, "Method not allowed: send JSON-RPC messages by POST"
        content_type = headers.get(b"content-type")
        if content_type != b"application/json" and not _is_json(content_type):
            return 415, "Unsupported media type: send application/json"
        return None

    def _is_here(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if path == self._path:
            return True
        root: str = scope.get("root_path", "")
        return bool(root) and path == root + (self._path or "")

    async def _body(self, headers: Headers, receive: Receive, reply: "_Reply") -> bytes | None:
        """The whole body, or None where it was refused or never came."""
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self._limits.body:
            await reply.refuse(413, f"Body too large: the limit is {self._limits.body} bytes")
            return None
        first: Started[MutableMapping[str, Any]] = Started(_as_coroutine(receive()))
        if first.done:
            event = first.value
            if event["type"] == "http.request" and not event.get("more_body"):
                body: bytes = event.get("body", b"")
                return body
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await _rest_of_body(first, receive, self._limits.body)
        except TimeoutError:
            await reply.refuse(408, "The request body took too long")
        except _TooLarge:
            await reply.refuse(413, f"Body too large: the limit is {self._limits.body} bytes")
        return None

    async def _answer(self, request: Request, receive: Receive, reply: "_Reply") -> None:
        if b"accept" in (headers := request.headers or {}):
            reply.can_notify = _may_stream(headers[b"accept"])
        run = Started(self.endpoint.answer(request, reply))
        if run.done:
            await reply.finish(self.endpoint, request.id, run.value)
            return
        attendant = _Attendant(receive, reply, self._limits.silence_seconds)
        outcome = await attendant.attend(run)
        if outcome is not None:
            await reply.finish(self.endpoint, request.id, outcome)


class _TooLarge(Exception):
    """The body went over its limit."""


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _rest_of_body(
    first: Awaitable[MutableMapping[str, Any]], receive: Receive, limit: int
) -> bytes | None:
    chunks: list[bytes] = []
    size = 0
    event = await first
    while event["type"] == "http.request":
        chunk: bytes = event.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _TooLarge
        chunks.append(chunk)
        if not event.get("more_body"):
            return b"".join(chunks)
        event = await receive()
    return None


def _is_json(content_type: bytes | None) -> bool:
    return content_type is not None and content_type.partition(b";")[0].strip().lower() == b"application/json"


def _may_stream(accept_header: bytes) -> bool:
    return b"text/event-stream" in accept_header or b"*/*" in accept_header or b"text/*" in accept_header


class _Attendant:
    """Stands by a call that waits: notices that the client left, and keeps its proxies awake."""

    def __init__(self, receive: Receive, reply: "_Reply", silence: float) -> None:
        self._receive = receive
        self._reply = reply
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._gone = False
        self._keep_alive: asyncio.Task[None] | None = None
        reply.on_stalled = self._leave

    async def attend(self, run: Started[Outcome]) -> Outcome | None:
        """The outcome of `run`, or None if the client left first and the call was cancelled."""
        watch = self._loop.create_task(self._watch())
        self._timer = self._loop.call_later(self._silence, self._tick)
        try:
            return await run
        except asyncio.CancelledError:
            if not self._gone:
                raise
            if self._task is not None:
                self._task.uncancel()
            return None
        finally:
            watch.cancel()
            self._timer.cancel()
            if self._keep_alive is not None:
                self._keep_alive.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        """The client is gone: nobody wants the outcome any more."""
        self._gone = True
        self._reply.can_notify = False
        if self._task is not None:
            self._task.cancel()

    def _tick(self) -> None:
        idle = self._loop.time() - self._reply.spoke_at
        if idle >= self._silence:
            self._keep_alive = self._loop.create_task(self._reply.keep_alive())
            idle = 0.0
        self._timer = self._loop.call_later(self._silence - idle, self._tick)


def _nothing() -> None:
    return None


class _Reply:
    """The HTTP response to one request: JSON if it ends before it streams, else SSE."""

    def __init__(self, send: Send, stall_seconds: float) -> None:
        self._send = send
        self._stall_seconds = stall_seconds
        self._writing: asyncio.Lock | None = None
        self.streaming = False
        self._ended = False
        self.can_notify = True
        self.on_stalled: Callable[[], None] = _nothing
        self.spoke_at = -1e9
        """When the stream last carried anything, by the loop's clock."""

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification; a client that accepts no stream, or has its answer, does without."""
        if self.can_notify and not self._ended:
            await self._stream(sse.event(jsonrpc.notification(method, params)))

    async def keep_alive(self) -> None:
        """Say nothing, audibly."""
        if self.can_notify and not self._ended:
            await self._stream(sse.KEEP_ALIVE)

    async def _stream(self, data: bytes) -> None:
        if self._writing is None:
            self._writing = asyncio.Lock()
        try:
            async with asyncio.timeout(self._stall_seconds), self._writing:
                if not self.streaming:
                    self.streaming = True
                    await self._send(
                        {"type": "http.response.start", "status": 200, "headers": list(_SSE_HEADERS)}
                    )
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            self.on_stalled()
            raise TransportError("The client stopped reading its stream") from None
        self.spoke_at = asyncio.get_running_loop().time()

    async def finish(self, endpoint: Endpoint, request_id: RequestId, outcome: Outcome) -> None:
        """Send the response and end."""
        self._ended = True
        body = outcome.render(endpoint.dialect, request_id)
        if not self.streaming:
            status = http_status(outcome.error.code) if isinstance(outcome, Failed) else 200
            await self._respond(status, body, _JSON)
            return
        assert self._writing is not None
        async with self._writing:
            await self._send({"type": "http.response.body", "body": sse.event(body)})

    async def error(self, endpoint: Endpoint, request_id: RequestId | None, error: ProtocolError) -> None:
        """Answer with an error found before dispatch."""
        await self._respond(http_status(error.code), endpoint.dialect.error(request_id, error), _JSON)

    async def accepted(self) -> None:
        """A notification was taken."""
        await self._respond(202, b"")

    async def refuse(self, status: int, reason: str) -> None:
        """Refuse on the level of HTTP."""
        body = jsonrpc.error_response(None, InvalidRequest(reason))
        extra = (b"allow", b"POST") if status == 405 else (b"connection", b"close")
        await self._respond(status, body, _JSON, extra)

    async def _respond(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-length", b"%d" % len(body)), *headers],
            }
        )
        await self._send({"type": "http.response.body", "body": body})
