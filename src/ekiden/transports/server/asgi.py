"""Streamable HTTP, server side, as an ASGI application (basic/transports: Streamable HTTP).

Every message is a POST of its own. A request is answered with plain JSON, or with an SSE
stream if the handler sends notifications or takes more than some seconds. When the
client goes away, the request is cancelled.
"""

import asyncio
import logging

import msgspec

from ekiden.errors import EnvelopeError, ProtocolError, UsageError
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.transports.server.eager import Started
from ekiden.transports.server.guard import Guard, sent_twice
from ekiden.transports.server.legacy.session_http import SessionHTTP
from ekiden.transports.server.port import Endpoint
from ekiden.transports.server.reply import (
    Attendant,
    Incoming,
    Receive,
    Reply,
    Respond,
    Scope,
    Send,
)
from ekiden.wire import jsonrpc
from ekiden.wire.headers import MODERN, VERSION, Headers, reject_duplicates
from ekiden.wire.json import decode
from ekiden.wire.jsonrpc import RequestId
from ekiden.wire.modern import accept

__all__ = ["HttpLimits", "Incoming", "StreamableHTTP"]

_log = logging.getLogger(__name__)


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
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
    """The ASGI application. With `path` None it answers at every path: a router has chosen it already."""

    def __init__(
        self, endpoint: Endpoint, *, path: str | None = "/mcp", guard: Guard, limits: HttpLimits
    ) -> None:
        self.endpoint = endpoint
        self._dialect = endpoint.dialect
        self._path = path
        self._guard = guard
        self.limits = limits
        self._digits = len(str(limits.body))
        self.legacy = SessionHTTP(
            endpoint.sessions, silence_seconds=limits.silence_seconds, stall_seconds=limits.stall_seconds
        )
        """Serves the clients of 2025."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(pairs)
        method, path = scope["method"], scope["path"]
        refusal = self.refusal(method, path, scope.get("root_path", ""), headers)
        repeating = None if len(headers) == len(pairs) else pairs
        incoming = Incoming(method, path, headers, refusal, b"", repeating)
        if refusal is None:
            reading = Started(_read_body(receive, self.limits.body))
            body = reading.value if reading.done else await self._slow_body(reading, incoming)
            if body is None and incoming.refusal is None:
                return  # The client left.
            incoming.body = body or b""
            if len(incoming.body) > self.limits.body:
                incoming.refusal = 413, f"Body too large: the limit is {self.limits.body} bytes"
        await self.exchange(incoming, receive, send)

    async def exchange(
        self, incoming: Incoming, receive: Receive, send: Send, respond: Respond | None = None
    ) -> None:
        """Answer one request whose body is here. `respond` sends a plain JSON response synchronously."""
        headers = incoming.headers
        if incoming.repeating is not None and (name := sent_twice(incoming.repeating)) is not None:
            incoming.refusal = 400, f"Bad request: {name} is sent more than once"
        reply = Reply(send, headers, self.limits.stall_seconds, respond)
        if incoming.refusal is not None and not self.legacy.allows(incoming):
            await reply.refuse(*incoming.refusal)
            return
        if incoming.refusal is not None or (headers.get(VERSION) != MODERN and self.legacy.takes(incoming)):
            await self.legacy.serve(incoming, receive, send)
            return
        request_id: RequestId | None = None
        try:
            message = jsonrpc.read(decode(incoming.body))
            if (request_id := message.id) is None:
                await reply.accepted()
                return
            if incoming.repeating is not None:
                reject_duplicates(incoming.repeating)
            request = accept(message, headers, self.endpoint.methods)
        except ProtocolError as error:
            if isinstance(error, EnvelopeError):
                request_id = error.request_id
            await reply.error(self._dialect, request_id, error)
            return
        outcome: Outcome | None
        answer = self.endpoint.begin(request, reply)
        if isinstance(answer, (Complete, Failed)):
            outcome = answer
        else:
            run = Started(answer)
            outcome = run.value if run.done else await self._wait(run, receive, reply)
        if outcome is not None:
            await reply.finish(outcome, self._dialect, request.id)

    async def _wait(self, run: Started[Outcome], receive: Receive, reply: Reply) -> Outcome | None:
        """The outcome, or None if the client left before there was one."""
        await asyncio.sleep(0)  # A handler that has a task of its own may begin and end meanwhile.
        run.go_on()
        if run.done:
            return run.value
        return await Attendant(receive, reply, self.limits.silence_seconds).attend(run)

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

    def refusal(self, method: str, path: str, root: str, headers: Headers) -> tuple[int, str] | None:
        """Why this request is refused before its body is read: status and reason, or None."""
        length = headers.get(b"content-length", b"")
        if len(length) >= self._digits and length.isdigit() and int(length[:20]) > self.limits.body:
            return 413, f"Body too large: the limit is {self.limits.body} bytes"
        if not self._guard.allows_host(headers.get(b"host")):
            return 421, "Host not allowed: add it to `allowed_hosts` to serve it"
        origin = headers.get(b"origin")
        if origin is not None and not self._guard.allows_origin(origin):
            return 403, "Origin not allowed: add it to `allowed_origins` to serve it"
        if path != self._path and not self._is_here(path, root):
            return 404, f"Not found: the MCP endpoint is {self._path}"
        if method != "POST":
            return 405, "Method not allowed: send JSON-RPC messages by POST"
        content_type = headers.get(b"content-type")
        if content_type != b"application/json" and not _is_json(content_type):
            return 415, "Unsupported media type: send application/json"
        return None

    def _is_here(self, path: str, root: str) -> bool:
        return self._path is None or (bool(root) and path == root + self._path)

    async def _slow_body(self, reading: Started[bytes | None], incoming: Incoming) -> bytes | None:
        """The rest of a body that was not whole at once."""
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                return await reading
        except TimeoutError:
            incoming.refusal = 408, "The request body took too long"
            return None


async def _read_body(receive: Receive, limit: int) -> bytes | None:
    """The body, or what there is of it when it goes over `limit`; None if the client left."""
    chunks: list[bytes] = []
    size = 0
    while (event := await receive())["type"] == "http.request":
        chunk: bytes = event.get("body", b"")
        size += len(chunk)
        chunks.append(chunk)
        if size > limit or not event.get("more_body"):
            return chunk if size == len(chunk) else b"".join(chunks)
    return None


def _is_json(content_type: bytes | None) -> bool:
    return content_type is not None and content_type.partition(b";")[0].strip().lower() == b"application/json"
