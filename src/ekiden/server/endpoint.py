"""The server as transports see it: dispatch, with middleware and tracing around it where there are any."""

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
from ekiden.transports.server.port import Stream
from ekiden.wire.modern import Modern, Request

__all__ = ["ServerEndpoint"]

_log = logging.getLogger("ekiden.server")


class ServerEndpoint:
    """Implements `ekiden.transports.server.port.Endpoint`."""

    def __init__(
        self,
        registry: Registry,
        rounds: Rounds,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None,
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
        """Whether it was started by somebody who also stops it, whoever uses it meanwhile."""
        self._users = 0
        self._wrapped: list[Middleware] = []
        self._run: Run = self._dispatcher.answer
        self.sessions = sessions(self)
        """The clients of 2025."""

    @property
    def methods(self) -> frozenset[str]:
        """The methods that are answered."""
        return self._registry.offered or self._registry.methods

    @property
    def dialect(self) -> Modern:
        """How answers are spelled."""
        return self._registry.dialect

    def wrap(self, middleware: Middleware, *, tasks: bool = False) -> None:
        """Put one more middleware inside those that are there; with `tasks`, around their legs too."""
        self._wrapped.append(middleware)
        self._run = around(self._wrapped, self._dispatcher.answer)
        if tasks and self._rounds.tasks is not None:
            self._rounds.tasks.layers.append(middleware)

    def at_once(self, request: Request) -> Outcome | None:
        """The outcome of a request that is answered with prepared bytes."""
        ready = self._dispatcher.ready.get(request.method)
        if ready is None or not self._started or self._wrapped or is_tracing():
            return None
        return ready(request)

    def answer(self, request: Request, stream: Stream) -> Coroutine[Any, Any, Outcome]:
        """Answer one request."""
        if not self._started:
            return self._start_and_answer(request, stream)
        if "opentelemetry.trace" in sys.modules and is_tracing():
            known = self._registry.has(request.method, request.name)
            return traced(request, lambda: self._run(request, stream), known=known)
        return self._run(request, stream)

    def runs_apart(self, request: Request) -> bool:
        """Whether `answer` runs what is not ours, handlers above all, in a task of its own."""
        if request.method != "tools/call" or not self._started or self._wrapped or self._rounds.stored:
            return False
        tool = self._registry.tools.get(request.name or "")
        if tool is None or tool.handler.is_direct:
            return False
        return "opentelemetry.trace" not in sys.modules or not is_tracing()

    async def _start_and_answer(self, request: Request, stream: Stream) -> Outcome:
        # Mounted in an application that passes no lifespan events on: the first request starts us.
        try:
            await self.start()
        except Exception:
            _log.exception("The lifespan failed to start")
            return Failed(InternalError("Internal error"))
        return await self.answer(request, stream)

    def left(self, session: object) -> None:
        """A session of a client has ended: handlers that are parked for it are cancelled."""
        self._rounds.parking.give_up(session)

    async def start(self) -> None:
        """Enter the lifespan, until `stop`; if it is in use already, until its last user has left."""
        self._owned = self._owned or not self._started
        await self._get_ready()

    @asynccontextmanager
    async def in_use(self) -> AsyncGenerator[None, None]:
        """Be ready while the block runs. The first who comes starts, the last who leaves stops."""
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
        """The server is about to stop: end subscriptions, and wait for no store that is away."""
        self._registry.hub.drain()
        self._rounds.once.is_stopping = True

    async def stop(self) -> None:
        """End subscriptions, leave the lifespan, and release what is the server's own."""
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
