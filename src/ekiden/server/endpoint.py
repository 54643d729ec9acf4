"""The server as transports see it: the dispatcher, inside middleware and tracing if there are any."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

from ekiden.errors import InsufficientScope, InternalError, InvalidParams, ProtocolError
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.server.auth.auth import Auth
from ekiden.server.dispatch import Dispatcher
from ekiden.server.extensions.hearing import Hearing
from ekiden.server.legacy.sessions import Sessions
from ekiden.server.lifespan import Lifespan
from ekiden.server.middleware import Middleware, Run, around
from ekiden.server.operations.recording import CallRecording
from ekiden.server.outgoing import OutgoingMiddleware, Outlet
from ekiden.server.registration.registry import Registry
from ekiden.server.rounds.gated import gated
from ekiden.server.rounds.rounds import Rounds
from ekiden.server.tasks.sources import TaskMap, TaskSource
from ekiden.server.tasks.tasks import Tasks
from ekiden.telemetry.observed import is_observed
from ekiden.telemetry.spans import traced
from ekiden.transports.server.large.results import LargeResults
from ekiden.transports.server.port import Ready, Stream
from ekiden.wire import versions
from ekiden.wire.handshake import request_meta
from ekiden.wire.incoming import Incoming
from ekiden.wire.jsonrpc import Message
from ekiden.wire.modern import Modern, Request
from ekiden.wire.principal import Principal

__all__ = ["ServerEndpoint"]

_log = logging.getLogger(__name__)


class ServerEndpoint:
    """Implements `ekiden.transports.server.port.Endpoint`."""

    def __init__(
        self,
        registry: Registry,
        rounds: Rounds,
        tasks: TaskMap,
        lifespan: Callable[[], AbstractAsyncContextManager[object]] | None,
        sessions: Callable[["ServerEndpoint"], Sessions],
        release: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._registry = registry
        self.methods: Container[str] = registry.methods
        """The methods that are answered."""
        self._rounds = rounds
        self.task_map = tasks
        """The tasks of the server, and of those behind it."""
        self._dispatcher = Dispatcher(registry, rounds)
        self._enter = lifespan
        self._lifespan = Lifespan(lifespan)
        self._release = release
        self._started = False
        self._draining = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where it was started."""
        self._owned = False
        """Whether `start` began it: then only `stop` ends it, and not the end of the last `in_use` block."""
        self._users = 0
        self._mounted: list[ServerEndpoint] = []
        self._is_plain = False
        """Whether it is started, and nobody sees what is sent."""
        self._wrapped: list[Middleware] = []
        self._intercepting = 0
        """How many of them, the last, belong to extensions."""
        self._listens = registry.extensions.listen
        self._hearing = Hearing(registry.extensions)
        self.outlet = Outlet()
        """Whoever sees what is sent."""
        self._auth: Auth | None = None
        self._recording: CallRecording | None = None
        self._compose()
        self.large = rounds.making.large
        """Its results that are so large that they wait for one another."""
        self.local: Principal | None = None
        """Who sends what comes over stdio and in memory."""
        self.sessions = sessions(self)
        """The sessions of clients of 2025."""

    @property
    def registry(self) -> Registry:
        """Everything that is registered."""
        return self._registry

    @property
    def tasks(self) -> Tasks | None:
        """The tasks of the server; None if its store keeps none."""
        return self._rounds.tasks

    @property
    def mounted(self) -> "Sequence[ServerEndpoint]":
        """The servers that are mounted in this one."""
        return self._mounted

    def take_in(self, inner: "ServerEndpoint", tasks: TaskSource) -> None:
        """Mount another server: it starts and stops with this one. `tasks` are those that it has."""
        if inner not in self._mounted:
            self._mounted.append(inner)
            self.task_map.sources.append(tasks)
            if self._recording is not None:
                inner.record(self._recording)
            inner.share(self.large)
            self._lifespan = Lifespan(self._with_mounted)
            self._dispatcher.learn_extensions()
            self._listens = self._registry.extensions.listen

    @property
    def started(self) -> bool:
        """Whether it has been started, and not stopped since."""
        return self._started

    @asynccontextmanager
    async def _with_mounted(self) -> AsyncGenerator[object, None]:
        """The lifespan inside those of the mounted servers."""
        async with AsyncExitStack() as stack:
            for inner in self._mounted:
                await stack.enter_async_context(inner.in_use())
            yield None if self._enter is None else await stack.enter_async_context(self._enter())

    @property
    def dialect(self) -> Modern:
        """How answers are encoded."""
        return self._registry.dialect

    def wrap(self, middleware: Middleware, *, tasks: bool = False) -> None:
        """Add a middleware inside those added before; with `tasks`, also around every leg of a task."""
        self._wrapped.insert(len(self._wrapped) - self._intercepting, middleware)
        self._compose()
        if tasks and self._rounds.tasks is not None:
            self._rounds.tasks.layers.append(middleware)

    def intercept(self, middleware: Middleware) -> None:
        """Add the middleware of an extension inside all others, also those that are added later."""
        self._wrapped.append(middleware)
        self._intercepting += 1
        self._compose()

    def guard(self, auth: Auth) -> None:
        """Tell who lacks scopes which ones, and where to get them."""
        self._auth = auth
        self.local = auth.local
        self._compose()

    def share(self, large: LargeResults) -> None:
        """Let large results wait among those of the server in which this one is mounted."""
        self.large = self._rounds.making.large = large
        for inner in self._mounted:
            inner.share(large)

    def record(self, recording: CallRecording) -> None:
        """Record what happens to calls, those of mounted servers too."""
        self._recording, self._rounds.records = recording, True
        if self._rounds.tasks is not None:
            self._rounds.tasks.recorder = recording.recorder
        for inner in self._mounted:
            inner.record(recording)
        self._compose()

    def _compose(self) -> None:
        dispatcher, recording = self._dispatcher, self._recording
        self._run: Run = dispatcher.answer if recording is None else recording.around(dispatcher.answer)
        self._begins: dict[str, Callable[[Request, Stream], Ready | Coroutine[Any, Any, Outcome]]] = {}
        """What answers a method, where there is a shorter way than `_run`."""
        if self._wrapped:
            self._run = gated(self._wrapped, self._run)
        else:
            self._begins.update(dispatcher.ready)
        if self._auth is not None:
            self._run = _challenging(self._run, self._auth)
        elif not self._wrapped and recording is None:
            self._begins["tools/call"] = dispatcher.call_tool

    def watch_outgoing(self, function: OutgoingMiddleware) -> None:
        """Add a function that sees what is sent."""
        self.outlet.add(function)
        self._is_plain = False

    @property
    def is_watched(self) -> bool:
        """Whether middleware, or an extension, sees messages that are not requests too."""
        return self._listens or bool(self._wrapped)

    async def admit(self, request: Request, go_on: Callable[[], object]) -> ProtocolError | None:
        """Show a message that is not a request to the middleware; the error if it is refused.

        `go_on` is called if it passes.
        """

        async def innermost(passed: Request, stream: Stream) -> Outcome:
            go_on()
            if passed.kind == "notification":
                self._hearing.hear(passed)
            return Complete({})

        outcome = await around(self._wrapped, innermost)(request, _NOWHERE)
        return outcome.error if isinstance(outcome, Failed) else None

    async def admit_opening(self, request: Request, opening: Run) -> Outcome:
        """Show an `initialize` to the middleware; `opening` answers it if it passes."""
        return await around(self._wrapped, opening)(request, _NOWHERE)

    async def notified(
        self, message: Message, incoming: Incoming | None, session: str | None
    ) -> ProtocolError | None:
        """Show a notification of a client of 2026 to the middleware; the error if it is refused."""
        try:
            meta = request_meta(message.params, versions.MODERN, {}, {}, None)
        except InvalidParams as error:  # It has a `_meta` that is not an object.
            return error
        method, params = message.method, message.params
        headers, principal = (
            (None, self.local) if incoming is None else (incoming.headers, incoming.principal)
        )
        request = Request("", method, params, meta, None, headers, None, session, "notification")
        request.http, request.principal = incoming, principal
        return await self.admit(request, _nothing)

    def begin(self, request: Request, stream: Stream) -> Ready | Coroutine[Any, Any, Outcome]:
        """The outcome if it is known already, else the coroutine that answers."""
        if not self._is_plain:
            return self._unusual(request, stream)
        if "opentelemetry" in sys.modules and is_observed():
            return self._traced(request, stream)
        return self._begins.get(request.method, self._run)(request, stream)

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer one request."""
        answer = self.begin(request, stream)
        return answer if isinstance(answer, Ready) else await answer

    async def _unusual(self, request: Request, stream: Stream) -> Outcome:
        """Answer where the server is not started yet, or somebody sees what is sent."""
        if not self._started:
            # Mounted in an application that passes no lifespan events on: the first request starts it.
            try:
                await self.start()
            except Exception:
                _log.exception("The lifespan failed to start")
                return Failed(InternalError("Internal error"))
        # A session shows what it sends itself, because it spells that for its own version.
        if not self.outlet.used or request.meta.protocol_version != versions.MODERN:
            return await self._traced(request, stream)
        outcome = await self._traced(request, self.outlet.stream(stream, request))
        return await self.outlet.outcome(outcome, request, self.dialect)

    def _traced(self, request: Request, stream: Stream) -> Coroutine[Any, Any, Outcome]:
        if "opentelemetry" in sys.modules and is_observed():
            known = self._registry.has(request.method, request.name)
            return traced(request, lambda: self._run(request, stream), known=known)
        return self._run(request, stream)

    def session_ended(self, session: object) -> None:
        """Cancel the handlers that are parked for a session, because it has ended."""
        self._rounds.parking.give_up(session)
        for inner in self._mounted:
            inner.session_ended(session)

    async def start(self) -> None:
        """Enter the lifespan, until `stop`. If an `in_use` block did it before, until the last block ends."""
        self.forget_a_closed_loop()
        self._owned = self._owned or not self._started
        await self._get_ready()

    @asynccontextmanager
    async def in_use(self) -> AsyncGenerator[None, None]:
        """Keep the server started while the block runs. The first block starts it, the last one stops it."""
        self._users += 1
        try:
            await self._get_ready()
            yield
        finally:
            self._users -= 1
            if not self._users and not self._owned:
                await self.stop()

    def forget_a_closed_loop(self) -> None:
        """Begin anew if the event loop is gone in which the server was started, as between two tests."""
        if self._loop is not None and self._loop.is_closed():
            self._started = self._owned = self._is_plain = False
            self._lifespan.forget()
            self._registry.hub.forget()
            self._rounds.once.forget()
            if self._rounds.tasks is not None:
                self._rounds.tasks.forget()
            self.sessions.forget_loop()
            self.large.forget()
            self._loop = None

    async def _get_ready(self) -> None:
        self.forget_a_closed_loop()
        if not self._started:
            self._dispatcher.state = await self._lifespan.start()
            try:
                if self._rounds.once.ledger.waits:
                    await self._rounds.once.check()  # Now, rather than when a user has answered.
                if self._rounds.tasks is not None:
                    await self._rounds.tasks.start(self._dispatcher.state)
            except BaseException:
                await self._lifespan.stop()
                raise
            self._registry.hub.reopen()
            self._rounds.once.is_stopping = self._draining = False
            self._started = True
            self._loop = asyncio.get_running_loop()
            self._is_plain = not self.outlet.used

    def unready(self) -> str | None:
        """Why this server should not be sent requests right now; None if it should."""
        if self._draining:
            return "shutting down"
        return None if self._started else "not started"

    def drain(self) -> None:
        """Prepare to stop: end subscriptions, and do not wait for an unavailable store any longer."""
        self._draining = True
        self._registry.hub.drain()
        self._rounds.once.is_stopping = True
        for inner in self._mounted:
            inner.drain()

    async def stop(self) -> None:
        """End subscriptions, leave the lifespan, and close the store if the server has opened it."""
        self.drain()
        self._started = self._owned = self._is_plain = False
        self.sessions.close()
        try:
            await self.sessions.stop()
            await self._rounds.parking.close()
            await self._rounds.once.stop()
            await self._hearing.stop()
            if self._rounds.tasks is not None:
                await self._rounds.tasks.stop()
            if self._rounds.once.standby is not None:
                await self._rounds.once.standby.stop()
        finally:
            try:
                await self._registry.hub.stop()
                await self._lifespan.stop()
            finally:
                if self._recording is not None:
                    await self._recording.stop()
                if self._release is not None:
                    await self._release()


class _Nowhere:
    """The stream of a message that gets no response."""

    can_notify = False

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Nobody can be told."""


_NOWHERE: Final = _Nowhere()


def _nothing() -> None:
    """The message is done with when it has passed."""


def _challenging(run: Run, auth: Auth) -> Run:
    """Complete the error of a caller that lacks scopes, whoever raised it."""

    async def challenging(request: Request, stream: Stream) -> Outcome:
        outcome = await run(request, stream)
        if type(outcome) is Failed and type(lacking := outcome.error) is InsufficientScope:
            return Failed(auth.insufficient(lacking.scopes))
        return outcome

    return challenging
