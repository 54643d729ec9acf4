"""The server as transports see it: the dispatcher, inside middleware and tracing if there are any."""

import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from ekiden.errors import InternalError
from ekiden.rounds.outcome import Failed, Outcome
from ekiden.server.dispatch import Dispatcher
from ekiden.server.legacy.sessions import Sessions
from ekiden.server.lifespan import Lifespan
from ekiden.server.middleware import Middleware, Run, around
from ekiden.server.registration.registry import Registry
from ekiden.server.rounds.rounds import Rounds
from ekiden.telemetry.spans import is_tracing, traced
from ekiden.transports.server.port import Ready, Stream
from ekiden.wire.modern import Modern, Request

__all__ = ["ServerEndpoint"]

_log = logging.getLogger(__name__)


class ServerEndpoint:
    """Implements `ekiden.transports.server.port.Endpoint`."""

    def __init__(
        self,
        registry: Registry,
        rounds: Rounds,
        lifespan: Callable[[], AbstractAsyncContextManager[object]] | None,
        sessions: Callable[["ServerEndpoint"], Sessions],
        release: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._registry = registry
        self._rounds = rounds
        self._dispatcher = Dispatcher(registry, rounds)
        self._lifespan = Lifespan(lifespan)
        self._release = release
        self._started = False
        self._owned = False
        """Whether `start` began it: then only `stop` ends it, and not the end of the last `in_use` block."""
        self._users = 0
        self._wrapped: list[Middleware] = []
        self._run: Run = self._dispatcher.answer
        self.sessions = sessions(self)
        """The sessions of clients of 2025."""

    @property
    def methods(self) -> frozenset[str]:
        """The methods that are answered."""
        return self._registry.offered or self._registry.methods

    @property
    def dialect(self) -> Modern:
        """How answers are encoded."""
        return self._registry.dialect

    def wrap(self, middleware: Middleware, *, tasks: bool = False) -> None:
        """Add a middleware inside those added before; with `tasks`, also around every leg of a task."""
        self._wrapped.append(middleware)
        self._run = around(self._wrapped, self._dispatcher.answer)
        if tasks and self._rounds.tasks is not None:
            self._rounds.tasks.layers.append(middleware)

    def begin(self, request: Request, stream: Stream) -> Ready | Coroutine[Any, Any, Outcome]:
        """The outcome if it is known already, else the coroutine that answers."""
        if not self._started:
            return self._start_and_answer(request, stream)
        if "opentelemetry.trace" in sys.modules and is_tracing():
            known = self._registry.has(request.method, request.name)
            return traced(request, lambda: self._run(request, stream), known=known)
        if self._wrapped or (ready := self._dispatcher.ready.get(request.method)) is None:
            return self._run(request, stream)
        return ready(request)

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer one request."""
        answer = self.begin(request, stream)
        return answer if isinstance(answer, Ready) else await answer

    async def _start_and_answer(self, request: Request, stream: Stream) -> Outcome:
        # Mounted in an application that passes no lifespan events on: the first request starts the server.
        try:
            await self.start()
        except Exception:
            _log.exception("The lifespan failed to start")
            return Failed(InternalError("Internal error"))
        return await self.answer(request, stream)

    def session_ended(self, session: object) -> None:
        """Cancel the handlers that are parked for a session, because it has ended."""
        self._rounds.parking.give_up(session)

    async def start(self) -> None:
        """Enter the lifespan, until `stop`. If an `in_use` block did it before, until the last block ends."""
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

    async def _get_ready(self) -> None:
        if not self._started:
            self._dispatcher.state = await self._lifespan.start()
            if self._rounds.tasks is not None:
                try:
                    await self._rounds.tasks.start(self._dispatcher.state)
                except BaseException:
                    await self._lifespan.stop()
                    raise
            self._registry.hub.reopen()
            self._rounds.once.is_stopping = False
            self._started = True

    def drain(self) -> None:
        """Prepare to stop: end subscriptions, and do not wait for an unavailable store any longer."""
        self._registry.hub.drain()
        self._rounds.once.is_stopping = True

    async def stop(self) -> None:
        """End subscriptions, leave the lifespan, and close the store if the server has opened it."""
        self.drain()
        self._started = self._owned = False
        self.sessions.close()
        try:
            await self._rounds.parking.close()
            if self._rounds.tasks is not None:
                await self._rounds.tasks.stop()
        finally:
            try:
                await self._lifespan.stop()
            finally:
                if self._release is not None:
                    await self._release()
