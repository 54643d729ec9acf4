"""One session of a client of 2025: what is remembered between its requests, and the questions to it.

It does not depend on a transport: every request comes with a `Line`, which sends messages to the client.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol

from ekiden.errors import (
    CannotAsk,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ProtocolError,
    StatusError,
)
from ekiden.rounds.outcome import Failed
from ekiden.server.legacy.asking import Asking
from ekiden.server.legacy.keeper import Keeper
from ekiden.server.legacy.requests import ClientRequests
from ekiden.server.legacy.watching import Watching
from ekiden.server.registration.results import after_handshake
from ekiden.sessions.logs import StreamLogs
from ekiden.sessions.record import SessionRecord, What
from ekiden.sessions.shared import SharedSessions
from ekiden.transports.server.legacy.port import Line
from ekiden.transports.server.port import Stream
from ekiden.transports.server.reply import LARGE
from ekiden.wire import jsonrpc
from ekiden.wire.handshake import Hello, Response, request_meta, usable_capabilities
from ekiden.wire.incoming import Incoming
from ekiden.wire.json import JsonObject, copied, encode
from ekiden.wire.jsonrpc import Message, RequestId
from ekiden.wire.legacy import Legacy
from ekiden.wire.meta import LOG_LEVELS
from ekiden.wire.modern import Kind, Request, target_of
from ekiden.wire.principal import Principal

__all__ = ["FIRST_LEVEL", "AskingStream", "Session", "SessionStream"]

_log = logging.getLogger(__name__)

_MOST_RUNNING: Final = 1024
"""Requests that may run at once in one session. A lost connection does not end them, so they can pile up."""
FIRST_LEVEL: Final = "info"
"""The log level of a client that has not sent `logging/setLevel`."""


class AskingStream(Stream, Protocol):
    """A stream to a client that can be asked questions."""

    async def ask(self, method: str, params: Mapping[str, Any] | None, elicitation_id: str) -> Any:
        """Send a request to the client, and wait for its result. Raises `CannotAsk` if none comes."""
        ...


class Session:
    """Implements `ekiden.transports.server.legacy.port.ClientSession`."""

    def __init__(
        self,
        keeper: Keeper,
        dialect: Legacy,
        hello: Hello,
        *,
        session_id: str = "",
        principal: str = "",
        client: str = "",
        kept: bool = True,
        shared: SharedSessions | None = None,
    ) -> None:
        self.id = session_id
        self.version = dialect.version
        self.principal = principal
        self.client = client
        """Whose session it is, as far as clients are told apart: a principal, or an address."""
        self.local: Principal | None = None
        self.log_level = FIRST_LEVEL
        self.on_end: list[Callable[[], None]] = []
        self.on_detach: list[Callable[[], None]] = []
        self.used_at = 0.0
        self.kept = kept
        """Whether the session outlives one request. If not, the client cannot be asked anything."""
        self._keeper = keeper
        self._dialect = dialect
        self._capabilities = usable_capabilities(self.version, hello.capabilities)
        self._client_info = hello.client_info
        self._shared = shared
        """Where the session lies, if it does not live in this process alone."""
        self.verified_at = self.touched_at = float("-inf")
        """When it was last seen in the store, and when that it is used was last written there."""
        self.revision = self.told = 0
        """Which record of the store is known here, and which is the newest that was told of."""
        self._listener = self._newest_listener = ""
        """The stream for changes that is open here, and the one that was opened last at any process."""
        self._requests = ClientRequests(session_id, shared)
        self._asking = Asking(self._requests, dialect, self._capabilities, keeper.limits.ask_seconds)
        self._running: dict[RequestId, asyncio.Task[Any]] = {}
        self._held = 0
        self.watching = Watching(keeper.registry, client)
        """The changes that its client is told of."""
        self._delivering: set[asyncio.Task[None]] = set()
        self._ended = False

    # Requests of the client

    async def answer(self, message: Message, incoming: Incoming | None, line: Line) -> bytes:
        """Answer a request; returns the response."""
        request_id = message.id
        assert request_id is not None
        try:
            request = self._accept(message, incoming)
        except ProtocolError as error:
            return self._dialect.error(request_id, error)
        task = asyncio.current_task()
        assert task is not None
        self._running[request_id] = task
        self.hold()
        outlet, large = self._keeper.endpoint.outlet, self._keeper.endpoint.large
        stream = SessionStream(self, outlet.line(line, request) if outlet.used else line)
        try:
            outcome = await self._keeper.endpoint.answer(request, stream)
            if task.cancelling():
                raise asyncio.CancelledError  # The handler swallowed it, but the client wants no answer.
            stream.open = False
            if isinstance(outcome, Failed) and isinstance(outcome.error, StatusError):
                line.fail(outcome.error)
            if large.busy:
                admitting = large.admit(outcome, self.client)
                del outcome
                outcome = await admitting
            response = after_handshake(outcome, request.method).render(self._dialect, request_id)
            if len(response) > LARGE:
                large.spelled(len(response))
            return await outlet.response(response, request) if outlet.used else response
        finally:
            stream.open = False
            if self._running.get(request_id) is task:
                del self._running[request_id]
            self.let_go()

    def _accept(self, message: Message, incoming: Incoming | None) -> Request:
        method = message.method
        if self._ended:  # After the transport had found it.
            raise InvalidRequest("Invalid request: this session has ended")
        if method == "initialize":
            raise InvalidRequest("Invalid request: this session is initialized already")
        if message.id in self._running:
            raise InvalidRequest(f"Invalid request: id {message.id!r} is in use by a running request")
        if len(self._running) >= _MOST_RUNNING:
            raise InternalError("Too many requests are running in this session")
        is_offered = self._keeper.offers(method, kept=self.kept)
        if not is_offered and not self._keeper.offers_tasks(method, self.version):
            raise MethodNotFound(f"Method not found: {method[:200]}")
        assert message.id is not None
        return self._request(message.id, method, message.params, incoming, target_of(method, message.params))

    def _request(
        self,
        request_id: RequestId,
        method: str,
        params: JsonObject,
        incoming: Incoming | None,
        name: str | None = None,
        kind: Kind = "request",
    ) -> Request:
        endpoint, declared = self._keeper.endpoint, self._capabilities
        if endpoint.is_watched or endpoint.outlet.used:
            declared = copied(declared)  # Functions of the author see it, and may change it.
        meta = request_meta(params, self.version, declared, self._client_info, self.log_level)
        sender = (None, self.local) if incoming is None else (incoming.headers, incoming.principal)
        headers, principal = sender
        return Request(
            request_id, method, params, meta, name, headers, None, self.id or None, kind, principal, incoming
        )

    # Other messages of the client

    async def take(self, message: Message | Response, incoming: Incoming | None) -> ProtocolError | None:
        """Handle a notification or an answer, if middleware lets it pass; the error if not.

        It has reached the process that it concerns when this returns.
        """
        delivering: set[asyncio.Task[None]] = set()
        refused: ProtocolError | None = None
        if not self._keeper.endpoint.is_watched:
            self._handle(message, delivering)
        else:
            try:
                seen = self._seen(message, incoming)
            except InvalidParams as error:  # It has a `_meta` that is not an object.
                return error
            refused = await self._keeper.endpoint.admit(seen, lambda: self._handle(message, delivering))
        if delivering:
            await asyncio.wait(delivering)  # They go on if the client leaves meanwhile.
            for task in delivering:
                task.result()
        return refused

    def _handle(self, message: Message | Response, delivering: "set[asyncio.Task[None]]") -> None:
        work = self._responded(message) if isinstance(message, Response) else self._notified(message)
        if work is not None:
            task = asyncio.get_running_loop().create_task(work)
            delivering.add(task)
            self._delivering.add(task)
            task.add_done_callback(self._delivered)

    def _delivered(self, task: "asyncio.Task[None]") -> None:
        self._delivering.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever waited has it; asyncio would log it if the client has left.

    def _seen(self, message: Message | Response, incoming: Incoming | None) -> Request:
        if isinstance(message, Message):
            return self._request("", message.method, message.params, incoming, kind="notification")
        answer = {"result": message.result} if message.error is None else {"error": message.error}
        return self._request(message.id or "", "", answer, incoming, kind="response")

    async def admits(self, method: str, incoming: Incoming) -> ProtocolError | None:
        """Whether middleware lets a GET or DELETE pass; the error if not."""
        if not self._keeper.endpoint.is_watched:
            return None
        seen = self._request("", method, {}, incoming, kind="http")
        return await self._keeper.endpoint.admit(seen, lambda: None)

    def _notified(self, message: Message) -> Coroutine[Any, Any, None] | None:
        """Handle a notification: the client is ready, or it cancels a request. What is left to do, if any."""
        if message.method == "notifications/initialized":
            self._asking.client_is_ready.set()
            return None if self._shared is None else self.remember("initialized")
        if message.method == "notifications/cancelled":
            request_id: Any = message.params.get("requestId")
            if type(request_id) in (int, str) and not self.cancel(request_id) and self._shared is not None:
                return self._shared.cancel(self.id, request_id, self.client)
        return None

    def cancel(self, request_id: RequestId) -> bool:
        """Cancel a request; False if it does not run here."""
        running = self._running.get(request_id)
        if running is not None:
            _log.debug("Cancelling request %r: its client wants that", request_id)
            running.cancel()
        return running is not None

    def _responded(self, response: Response) -> Coroutine[Any, Any, None] | None:
        """Handle an answer. It is dropped if it belongs to no open question, or came before."""
        if self._requests.answered(response):
            return None
        if self._shared is not None:
            return self._requests.pass_on(response)
        _log.debug("The client answered %r, which is not an open question", response.id)
        return None

    async def ask(
        self, line: Line, method: str, params: Mapping[str, Any] | None, elicitation_id: str
    ) -> Any:
        """Ask the client a question, on the stream of the request that led to it."""
        return await self._asking.ask(line, method, params, elicitation_id, kept=self.kept)

    # What the session remembers

    async def remember(self, what: What, value: str = "") -> None:
        """Have other processes remember what was changed here."""
        if self._shared is not None and (
            changed := await self._shared.change(self.id, what, value, self.client)
        ):
            self.take_over(changed[1])

    def take_over(self, record: SessionRecord) -> None:
        """Take over what the store remembers, unless something newer is known."""
        if record.revision < self.revision:
            return
        self.revision = record.revision
        if record.initialized:
            self._asking.client_is_ready.set()
        self.log_level = record.log_level
        # What was told of and is not in this row yet stays until the row is read that has it.
        self.watching.watch_only(record.watched, keep=record.revision < self.told)
        self._newest_listener = record.listener
        self._detach_if_moved()

    def set_level(self, level: object) -> None:
        """Send log messages of this level and above."""
        if type(level) is not str or level not in LOG_LEVELS:
            raise InvalidParams(f"Invalid params: `level` must be one of {', '.join(LOG_LEVELS)}")
        self.log_level = level

    async def changes(self, reader: Principal | None) -> AsyncIterator[bytes]:
        """Notifications of changes. Changes while the client has no stream open are sent on the next one."""
        await self._keeper.registry.hub.ready()
        has_listened = self._shared is not None and await self._attach(self._shared)
        async for method, params in self.watching.notifications(has_listened=has_listened, reader=reader):
            if message := await self._told(method, params):
                yield message

    async def _told(self, method: str, params: JsonObject) -> bytes:
        """A notification outside of requests as it is to be sent; empty if it is not."""
        outlet = self._keeper.endpoint.outlet
        if outlet.used:
            body = await outlet.notification(method, params, self.id or None, None)
            return b"" if body is None else encode(body)
        return jsonrpc.notification(method, params)

    async def _attach(self, shared: SharedSessions) -> bool:
        """End the client's stream for changes in other processes; whether it has had one before."""
        name = secrets.token_hex(6)
        changed = await shared.change(self.id, "listened", name)
        if changed is None:
            return False
        self._listener = name  # Not before: until then the store knows of another one.
        self.take_over(changed[1])
        self._detach_if_moved()
        return changed[0].listened

    def _detach_if_moved(self) -> None:
        if self._listener and self._listener != self._newest_listener:
            self.detach()

    def detach(self) -> None:
        """The client has its stream for changes in another process now."""
        self._listener = ""
        self.watching.forget()
        for callback in self.on_detach:
            callback()

    # Its life

    def hold(self) -> None:
        """Mark the session as in use, until `let_go`."""
        self._held += 1

    def let_go(self) -> None:
        """End one `hold`."""
        self._held -= 1
        self.used_at = asyncio.get_running_loop().time()

    @property
    def in_use(self) -> bool:
        """Whether a request runs, or a stream is open."""
        return self._held > 0

    @property
    def logs(self) -> StreamLogs | None:
        """Where the events of its streams are kept for other processes; None if it lives in this one."""
        return None if self._shared is None else self._keeper.logs

    async def delete(self) -> None:
        """End the session in all processes."""
        if self._shared is not None:
            await self._shared.remove(self.id)
        self.end()

    def end(self) -> None:
        """End the session in this process: cancel its running requests, and forget its id."""
        self._ended = True
        self._keeper.forget(self.id)
        self._keeper.endpoint.session_ended(self)
        for task in tuple(self._running.values()):
            task.cancel()
        self.watching.end()
        for callback in self.on_end:
            callback()
        self.on_end.clear()


class SessionStream:
    """The stream of one request. Implements `AskingStream`."""

    def __init__(self, session: Session, line: Line) -> None:
        self.session = session
        self.open = True
        """Whether the request still runs. Later, messages from tasks that its handler started are dropped."""
        self._line = line

    @property
    def can_notify(self) -> bool:
        """Whether the request still runs, and its client accepts a stream."""
        return self.open and self._line.can_stream

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification that belongs to the request."""
        if self.open:
            await self._line.send(jsonrpc.notification(method, params))
        else:
            await asyncio.sleep(0)

    async def ask(self, method: str, params: Mapping[str, Any] | None, elicitation_id: str) -> Any:
        """Send a request to the client."""
        if not self.open:
            raise CannotAsk("The call has ended, so its client cannot be asked any more")
        return await self.session.ask(self._line, method, params, elicitation_id)

    def hang_up(self) -> None:
        """Close the connection; the client reconnects for the rest."""
        if self.open:
            self._line.hang_up()
