"""One session of a client of 2025: what is remembered between its requests, and the questions to it.

It does not depend on a transport: every request comes with a `Line`, which sends messages to the client.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from ekiden.errors import (
    CannotAsk,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    ProtocolError,
    SessionsFull,
    Unsayable,
)
from ekiden.rounds.outcome import Failed
from ekiden.rounds.pushing import undeclared
from ekiden.server.legacy.keeper import Keeper, News
from ekiden.server.registration.results import tool_error
from ekiden.server.subscriptions import Change, Filter, Subscription
from ekiden.transports.server.legacy.port import Line
from ekiden.transports.server.port import Stream
from ekiden.wire import jsonrpc, versions
from ekiden.wire.handshake import Hello, Response, request_meta, usable_capabilities
from ekiden.wire.headers import Headers
from ekiden.wire.json import JsonObject
from ekiden.wire.jsonrpc import Message, RequestId
from ekiden.wire.legacy import Legacy
from ekiden.wire.meta import LOG_LEVELS
from ekiden.wire.modern import Request, target_of
from ekiden.wire.tasks import LEGACY_NOTIFICATION, NOTIFICATION

__all__ = ["AskingStream", "Session", "SessionStream"]

_log = logging.getLogger(__name__)

_LISTS: Final = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
_MOST_WATCHED: Final = 1000
"""Resources that one session may subscribe to, and tasks whose changes are sent to it."""
_LONGEST_WATCHED: Final = 2048
"""Characters of a URI that a session may subscribe to: about as many as browsers accept."""
_MOST_RUNNING: Final = 1024
"""Requests that may run at once in one session. A lost connection does not end them, so they can pile up."""
_HANDSHAKE_SECONDS: Final = 10.0
"""How long a question waits for the client to say that it is initialized."""
_FIRST_LEVEL: Final = "info"
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
        kept: bool = True,
    ) -> None:
        self.id = session_id
        self.version = dialect.version
        self.principal = principal
        self.log_level = _FIRST_LEVEL
        self.on_end: list[Callable[[], None]] = []
        self.used_at = 0.0
        self.kept = kept
        """Whether the session outlives one request. If not, the client cannot be asked anything."""
        self._keeper = keeper
        self._dialect = dialect
        self._capabilities = usable_capabilities(self.version, hello.capabilities)
        self._client_info = hello.client_info
        self._initialized = asyncio.Event()
        self._running: dict[RequestId, asyncio.Task[Any]] = {}
        self._asked: dict[int, asyncio.Future[Response]] = {}
        self._ids = itertools.count(1)
        self._held = 0
        self._watched: dict[str, None] = {}
        self._tasks: dict[str, tuple[News, Callable[[], None]]] = {}
        self._subscription: Subscription | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._ended = False

    # Requests of the client

    async def answer(self, message: Message, headers: Headers | None, line: Line) -> bytes:
        """Answer a request; returns the response."""
        request_id = message.id
        assert request_id is not None
        try:
            request = self._accept(message, headers)
        except ProtocolError as error:
            return self._dialect.error(request_id, error)
        task = asyncio.current_task()
        assert task is not None
        self._running[request_id] = task
        self.hold()
        stream = SessionStream(self, line)
        try:
            outcome = await self._keeper.endpoint.answer(request, stream)
            if task.cancelling():
                raise asyncio.CancelledError  # The handler swallowed it, but the client wants no answer.
        finally:
            stream.open = False
            if self._running.get(request_id) is task:
                del self._running[request_id]
            self.let_go()
        if isinstance(outcome, Failed) and isinstance(missing := outcome.error, MissingCapability):
            # 2025 has no error code for this. The caller of a tool can correct it, so it gets a result.
            text = undeclared(missing.required)
            outcome = tool_error(text) if request.method == "tools/call" else Failed(InvalidRequest(text))
        return outcome.render(self._dialect, request_id)

    def _accept(self, message: Message, headers: Headers | None) -> Request:
        method = message.method
        if self._ended:  # After the transport had found it.
            raise InvalidRequest("Invalid request: this session has ended")
        if method == "initialize":
            raise InvalidRequest("Invalid request: this session is initialized already")
        if message.id in self._running:
            raise InvalidRequest(f"Invalid request: id {message.id!r} is in use by a running request")
        if len(self._running) >= _MOST_RUNNING:
            raise InternalError("Too many requests are running in this session")
        if not self._keeper.offers(method, kept=self.kept) and not self._keeper.offers_tasks(
            method, self.version
        ):
            raise MethodNotFound(f"Method not found: {method[:200]}")
        assert message.id is not None
        meta = request_meta(
            message.params, self.version, self._capabilities, self._client_info, self.log_level
        )
        return Request(message.id, method, message.params, meta, target_of(method, message.params), headers)

    def notified(self, message: Message) -> None:
        """Handle a notification: the client is ready, or it cancels a request."""
        if message.method == "notifications/initialized":
            self._initialized.set()
        elif message.method == "notifications/cancelled":
            request_id: Any = message.params.get("requestId")
            running = self._running.get(request_id) if type(request_id) in (int, str) else None
            if running is not None:
                _log.debug("Cancelling request %r: %s", request_id, message.params.get("reason"))
                running.cancel()

    # Questions to the client

    async def ask(
        self, line: Line, method: str, params: Mapping[str, Any] | None, elicitation_id: str
    ) -> Any:
        """Ask the client a question, on the stream of the request that led to it."""
        await self._can_ask(line)
        try:
            spelled = self._dialect.question(method, params, elicitation_id)
        except Unsayable as problem:
            raise CannotAsk(f"This cannot be asked of a client of {self.version}: {problem}") from None
        number = next(self._ids)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        seconds = self._keeper.limits.ask_seconds
        try:
            async with asyncio.timeout(seconds):
                await line.send(jsonrpc.request(number, method, spelled))
                response = await answer
        except TimeoutError:
            self._withdraw(line, number, "no answer in time")
            raise CannotAsk(f"The client did not answer {method} within {seconds:g} seconds") from None
        except asyncio.CancelledError:
            self._withdraw(line, number, "the answer is not needed any more")
            raise
        finally:
            del self._asked[number]
        if response.error is not None:
            raise CannotAsk(f"The client could not answer {method}: {_reason(response.error)}")
        return response.result

    async def _can_ask(self, line: Line) -> None:
        if not self.kept:
            raise CannotAsk(
                "This needs an answer from the client, but this server keeps no sessions for clients of "
                f"{self.version}: use a client of {versions.MODERN}, or have the server keep sessions"
            )
        if not line.can_stream:
            raise CannotAsk("This needs an answer from the client: send `Accept: text/event-stream`")
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                await self._initialized.wait()
        except TimeoutError:
            raise CannotAsk(
                "The client cannot be asked before it has sent notifications/initialized"
            ) from None

    def _withdraw(self, line: Line, number: int, reason: str) -> None:
        message = jsonrpc.notification("notifications/cancelled", {"requestId": number, "reason": reason})
        task = asyncio.get_running_loop().create_task(_send(line, message))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def responded(self, response: Response) -> None:
        """Handle an answer. It is dropped if it belongs to no open question, or came before."""
        asked = self._asked.get(response.id) if isinstance(response.id, int) else None
        if asked is None or asked.done():
            _log.debug("The client answered %r, which is not an open question", response.id)
        else:
            asked.set_result(response)

    # What the session remembers

    def set_level(self, level: object) -> None:
        """Send log messages of this level and above."""
        if type(level) is not str or level not in LOG_LEVELS:
            raise InvalidParams(f"Invalid params: `level` must be one of {', '.join(LOG_LEVELS)}")
        self.log_level = level

    def watch(self, uri: object) -> None:
        """Send a notification when a resource changes."""
        if type(uri) is not str:
            raise InvalidParams("Invalid params: `uri` is required and must be a string")
        if len(uri) > _LONGEST_WATCHED:
            raise InvalidParams(f"Invalid params: `uri` has more than {_LONGEST_WATCHED} characters")
        if len(self._watched) >= _MOST_WATCHED:
            raise InvalidParams(f"Invalid params: a session watches at most {_MOST_WATCHED} resources")
        self._watched[uri] = None
        self._update_filter()

    def unwatch(self, uri: object) -> None:
        """Send no more notifications about a resource."""
        if type(uri) is not str:
            raise InvalidParams("Invalid params: `uri` is required and must be a string")
        self._watched.pop(uri, None)
        self._update_filter()

    def follow(self, task_id: str, news: News, stop: Callable[[], None]) -> None:
        """Send the changes of a task until `unfollow`, which calls `stop`.

        If there are too many, the oldest is unfollowed.
        """
        if len(self._tasks) >= _MOST_WATCHED:
            self.unfollow(next(iter(self._tasks)))
        self._tasks[task_id] = (news, stop)
        self._update_filter()

    def unfollow(self, task_id: str) -> None:
        """Send the changes of a task no longer."""
        _, stop = self._tasks.pop(task_id, (None, None))
        if stop is not None:
            stop()
            self._update_filter()

    def offer(self, change: Change) -> None:
        """Queue a change, from any thread. Dropped if the client has never opened a stream for changes."""
        if self._subscription is not None:
            self._subscription.offer(change)

    def _update_filter(self) -> None:
        if self._subscription is not None:
            self._subscription.want(self._filter())

    def _filter(self) -> Filter:
        granted = self._keeper.registry.grant(Filter(_LISTS, tuple(self._watched)))
        return msgspec.structs.replace(granted, tasks=tuple(self._tasks))

    async def changes(self) -> AsyncIterator[bytes]:
        """Notifications of changes. Changes while the client has no stream open are sent on the next one."""
        if self._subscription is None:
            try:
                self._subscription = self._keeper.registry.hub.open(self._filter())
            except InternalError as error:
                raise SessionsFull(error.message) from None
        async for change in self._subscription:
            if change.method != NOTIFICATION:
                yield jsonrpc.notification(change.method, change.params())
            elif (params := await self._news(change.uri or "")) is not None:
                yield jsonrpc.notification(LEGACY_NOTIFICATION, params)

    async def _news(self, task_id: str) -> JsonObject | None:
        news, _ = self._tasks.get(task_id, (None, None))
        return None if news is None else await news()

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

    def end(self) -> None:
        """End the session: cancel its running requests, and forget its id."""
        self._ended = True
        self._keeper.forget(self.id, self.principal)
        self._keeper.endpoint.session_ended(self)
        for task in tuple(self._running.values()):
            task.cancel()
        for task_id in tuple(self._tasks):
            self.unfollow(task_id)
        if self._subscription is not None:
            self._keeper.registry.hub.close(self._subscription)
            self._subscription.end()
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


async def _send(line: Line, message: bytes) -> None:
    try:
        await line.send(message)
    except OSError as error:
        _log.debug("A notification could not be sent to the client: %s", error)


def _reason(error: Mapping[str, object]) -> str:
    return str(error.get("message") or error.get("code") or "it gave no reason")[:1000]
