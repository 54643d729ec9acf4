"""The connection to one upstream: opened, watched, lost, and opened again.

A call that finds no connection has one attempted at once, so that an upstream which is back is used at once.
Calls of an upstream of 2025 go over it only if they have no principal; the others have sessions of their own.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from ekiden.client.answering import Answerer
from ekiden.client.calls import within
from ekiden.client.checking import LeftOut
from ekiden.client.connection import ServerConnection
from ekiden.client.extensions.enabled import EnabledExtensions
from ekiden.client.target import ClientLimits, LinkOptions
from ekiden.errors import EkidenError, UsageError
from ekiden.gateway.sessions import Sessions, Way, ask_alive, close, want_log
from ekiden.gateway.turnstile import Turnstile
from ekiden.gateway.upstream import Upstream, unavailable, why_unavailable
from ekiden.transports.client.arriving import Arriving
from ekiden.transports.client.complaints import Complaints
from ekiden.version import __version__
from ekiden.wire.json import JsonObject
from ekiden.wire.printable import printable

__all__ = ["Connector"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0
"""Seconds before an upstream is tried again: doubled with every attempt."""
_SOON: Final = 1.0
"""Seconds in which a call does not cause another attempt: the last one has just failed."""
_REACH_SECONDS: Final = 10.0
"""How long a call waits for an attempt to end."""
_CHECK_SECONDS: Final = 30.0
"""How often an idle upstream is asked whether it is there."""
_ALIVE_SECONDS: Final = 10.0
"""How long it may take to answer that."""
_INFO: Final = {"name": "ekiden-gateway", "version": __version__}
_ASKABLE: Final[JsonObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
"""What a server of 2025 is told. A session serves many calls; each client is asked only what it declared."""


class _Passer(Answerer):
    """Answers what an upstream of 2025 asks on its channel: the client of the call does."""

    def __init__(self, turnstile: Turnstile) -> None:
        super().__init__()
        self._turnstile = turnstile
        self.capabilities = _ASKABLE

    async def answer(self, key: str, request: object) -> JsonObject | LeftOut:
        """Have the call answer that the question belongs to."""
        assert isinstance(request, dict)
        return await self._turnstile.ask(key, request)  # pyright: ignore[reportUnknownArgumentType]  a message


class Connector:
    """Keeps one upstream connected. Implements `ekiden.gateway.sessions.Way`.

    `on_open` is called with every new connection before it is used, `while_open` runs as long as it lasts.
    """

    def __init__(
        self,
        upstream: Upstream,
        limits: ClientLimits,
        *,
        on_open: Callable[[ServerConnection], Awaitable[None]],
        while_open: Callable[[ServerConnection], Coroutine[Any, Any, None]],
        on_change: Callable[[str | None], None],
    ) -> None:
        self.upstream = upstream
        self._limits = limits
        self._on_open = on_open
        self._while_open = while_open
        self._on_change = on_change
        """Called with why the upstream is unavailable, or None."""
        self._complain = Complaints(_log, about=upstream.name)
        self.begin()

    def begin(self) -> None:
        """Begin anew, perhaps in another event loop. Call it before `run`."""
        self.connection: ServerConnection | None = None
        self.turnstile = Turnstile(self.upstream.name, is_shared=True)
        self._sessions = Sessions(self.upstream, self._open_own)
        self._arriving = Arriving(self._limits.arriving_bytes)
        self._why = "it was not connected to yet"
        self._wake = asyncio.Event()
        self._attempt: asyncio.Future[None] | None = None
        self._attempted_at = float("-inf")

    async def run(self) -> None:
        """Keep the upstream connected, until cancelled."""
        try:
            await self._keep_connected()
        finally:
            await self._sessions.close()

    async def _keep_connected(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            connection = await self._open()
            if connection is None:
                await self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            working = asyncio.create_task(self._while_open(connection))
            working.add_done_callback(lambda _: self._wake.set())
            try:
                await self._until_lost(connection, working)
            finally:
                self.connection = None
                working.cancel()
                await asyncio.wait({working})
                await close(connection)

    async def first_attempt(self) -> None:
        """Wait until the upstream was tried once, with or without success."""
        while self._attempted_at == float("-inf"):
            await asyncio.wait({self._attempting()})

    def _attempting(self) -> "asyncio.Future[None]":
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_future()
        return self._attempt

    async def _open(self) -> ServerConnection | None:
        attempt = self._attempting()
        upstream = self.upstream
        connection = self._new_connection(self.turnstile, upstream.mode)
        try:
            async with within(upstream.start_timeout, "Connecting"):
                await connection.open()
                self._check_forwarding(connection)
                await self._on_open(connection)
        except Exception as error:
            self._lost(error)
            await close(connection)
            return None
        except BaseException:
            await close(connection)
            raise
        else:
            self.connection, self._why = connection, ""
            self._on_change(None)
            _log.info("%s: connected to %s", upstream.name, upstream.address)
            return connection
        finally:
            self._attempted_at = asyncio.get_running_loop().time()
            if not attempt.done():
                attempt.set_result(None)

    def _new_connection(self, turnstile: Turnstile, mode: str) -> ServerConnection:
        upstream = self.upstream
        return ServerConnection(
            upstream.target,
            _Passer(turnstile),
            info=_INFO,
            mode=mode,
            draft=False,
            log_level=None,
            on_log=turnstile.log,
            options=LinkOptions(
                limits=self._limits,
                env=upstream.env,
                cwd=upstream.cwd,
                headers=upstream.headers,
                arriving=self._arriving,
            ),
            extensions=EnabledExtensions(()),  # That of tasks is always among them.
        )

    async def _open_own(self, turnstile: Turnstile) -> ServerConnection:
        """Open the session of a principal; `InternalError` if that fails."""
        connection = self._new_connection(turnstile, "legacy")
        try:
            async with within(self.upstream.start_timeout, "Connecting"):
                await connection.open()
                await want_log(connection)
        except Exception as error:
            await close(connection)
            self._complain("a session for a principal could not be opened: %s", error)
            self.suspect()
            raise unavailable(self.upstream.name, why_unavailable(error)) from error
        except BaseException:
            await close(connection)
            raise
        return connection

    @asynccontextmanager
    async def way(self, principal: str) -> AsyncGenerator[Way, None]:
        """How a call of a principal gets to the upstream. What it uses stays open as long as this lasts."""
        connection = await self.reach()
        if principal and connection.session.era == "legacy":
            with self._sessions.lease(principal) as own:
                yield own
        else:
            yield self

    def _check_forwarding(self, connection: ServerConnection) -> None:
        if self.upstream.forward_headers and connection.session.era == "legacy":
            raise UsageError(
                f"{self.upstream.name} speaks {connection.session.version}: its sessions serve many "
                "requests, whose headers may differ, so that none of their headers can be sent on; leave "
                "forwardHeaders out"
            )

    def _lost(self, error: BaseException) -> None:
        before, self._why = self._why, why_unavailable(error)
        level = logging.DEBUG if before == self._why else logging.WARNING  # It is tried again and again.
        is_known = isinstance(error, EkidenError | OSError)
        _log.log(
            level,
            "%s: %s is not available: %s",
            self.upstream.name,
            self.upstream.address,
            printable(str(error)),
            exc_info=None if is_known else error,
        )
        self._on_change(self._why)

    async def _until_lost(self, connection: ServerConnection, working: "asyncio.Task[None]") -> None:
        """Return when the upstream does not answer any more, or when the work with it has failed."""
        era = connection.session.era
        while True:
            await self._sleep(_CHECK_SECONDS)
            if working.done() and (failure := working.exception()) is not None:
                self._lost(failure)
                return
            try:
                async with within(_ALIVE_SECONDS, "The check"):
                    await ask_alive(connection)
                if connection.session.era != era:
                    _log.info("%s has changed its era, and is connected to again", self.upstream.name)
                    return
            except EkidenError as error:
                self._lost(error)
                return

    async def _sleep(self, seconds: float) -> None:
        """Wait, but not if somebody wants to know now."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    def suspect(self) -> None:
        """A request got no answer: find out whether the upstream is still there."""
        self._wake.set()

    async def reach(self) -> ServerConnection:
        """The connection. If there is none, one is attempted now, unless that has just failed."""
        if self.connection is None:
            if asyncio.get_running_loop().time() - self._attempted_at > _SOON:
                attempt = self._attempting()
                self._wake.set()
                await asyncio.wait({attempt}, timeout=_REACH_SECONDS)
            if self.connection is None:
                raise unavailable(self.upstream.name, self._why)
        return self.connection
