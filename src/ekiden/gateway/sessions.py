"""Sessions with an upstream of 2025, of which each principal has its own.

Such a server often does not say whom a question, a log message or progress is for. In a session of its own,
which on stdio is a process of its own, all of it is for one principal; and whoever leaves a question open, or
makes its process hang or end, holds up nobody else. A session is opened by the first call, again after it was
lost, and closed when nothing has hung on it for a while.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias

from ekiden.client.calls import within
from ekiden.client.connection import ServerConnection
from ekiden.client.sessions.session import ClientRequest
from ekiden.errors import EkidenError, InternalError, ServerError
from ekiden.gateway.turnstile import Turnstile
from ekiden.gateway.upstream import Upstream, unavailable
from ekiden.transports.client.complaints import Complaints

__all__ = ["OwnSession", "Sessions", "Way", "ask_alive", "close", "want_log"]

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 300.0
"""How long a session stays open without a call: longer than a model thinks between two of them."""
_ALIVE_SECONDS: Final = 10.0
"""How long a server may take to answer that it is there."""
_CLOSED: Final = "the connection to it is being closed"

Connect: TypeAlias = Callable[[Turnstile], Awaitable[ServerConnection]]


class Way(Protocol):
    """How a call gets to an upstream: the connection that it may use, and whose that is."""

    @property
    def turnstile(self) -> Turnstile:
        """The calls that use the connection."""
        ...

    async def reach(self) -> ServerConnection:
        """The connection, opened if there is none; `InternalError` if that fails."""
        ...

    def suspect(self) -> None:
        """A request got no answer: find out whether the server is still there."""
        ...


class OwnSession:
    """The session of one principal. Implements `Way`."""

    def __init__(self, name: str, connect: Connect, discard: Callable[[ServerConnection], None]) -> None:
        self.turnstile = Turnstile(name)
        self.calls = 0
        self.idle_since = 0.0
        self.closing_later: asyncio.TimerHandle | None = None
        self._name = name
        self._connect = connect
        self._discard = discard
        self._is_closed = False
        self._connection: ServerConnection | None = None
        self._opening: asyncio.Task[ServerConnection] | None = None
        self._checking: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether anything hangs on it."""
        return self.calls > 0 or self._opening is not None

    async def reach(self) -> ServerConnection:
        """The connection. Whoever comes while it is opened waits for the same one."""
        if self._connection is not None and self._connection.is_lost:
            self._drop(self._connection)
        if self._connection is not None:
            return self._connection
        if self._is_closed:  # A call that outlives the gateway must not start another process.
            raise unavailable(self._name, _CLOSED)
        if (opening := self._opening) is None:
            opening = self._opening = asyncio.create_task(self._open())
            opening.add_done_callback(_taken)
        await asyncio.wait({opening})  # Whoever leaves does not end it for the others.
        if opening.cancelled():
            raise unavailable(self._name, _CLOSED)
        return opening.result()

    async def _open(self) -> ServerConnection:
        try:
            turnstile = Turnstile(self._name)  # Calls that were lost with the last process ask nothing here.
            self._connection = await self._connect(turnstile)
            self.turnstile = turnstile
            return self._connection
        finally:
            self._opening = None

    def suspect(self) -> None:
        """Find out whether the server is still there. If not, the next call opens another session."""
        if self._connection is not None and self._checking is None:
            self._checking = asyncio.create_task(self._check(self._connection))

    async def _check(self, connection: ServerConnection) -> None:
        try:
            async with within(_ALIVE_SECONDS, "The check"):
                await ask_alive(connection)
        except EkidenError as error:
            _log.debug("%s: the session of a principal was lost: %s", self._name, error)
            self._drop(connection)
        finally:
            self._checking = None

    def _drop(self, connection: ServerConnection) -> None:
        if self._connection is connection:
            self._connection = None
            self._discard(connection)

    async def close(self) -> None:
        """End it for good, in a few seconds at most."""
        self._is_closed = True
        if tasks := {task for task in (self._opening, self._checking) if task is not None}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)


class Sessions:
    """The sessions of principals with one upstream, by principal."""

    def __init__(self, upstream: Upstream, connect: Connect) -> None:
        self._name = upstream.name
        self._most = upstream.most_sessions
        self._connect = connect
        self._complain = Complaints(_log, about=upstream.name)
        self._of: dict[str, OwnSession] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def lease(self, principal: str) -> Generator[OwnSession, None, None]:
        """The session of a principal, kept as long as this lasts; `InternalError` if there is no room."""
        own = self._of.get(principal) or self._make(principal)
        own.calls += 1
        if own.closing_later is not None:
            own.closing_later.cancel()
        try:
            yield own
        finally:
            own.calls -= 1
            if not own.calls:
                own.idle_since = asyncio.get_running_loop().time()
                self._close_later(principal, own)

    def _make(self, principal: str) -> OwnSession:
        if len(self._of) >= self._most:
            self._make_room()
        own = self._of[principal] = OwnSession(self._name, self._connect_in_turn, self._discard)
        return own

    def _make_room(self) -> None:
        """Close the session that has been idle for longest."""
        idle = [(own.idle_since, principal) for principal, own in self._of.items() if not own.is_busy]
        if not idle:
            self._complain("a caller was refused: all %d sessions are in use (`sessions`)", self._most)
            raise InternalError(
                f"All {self._most} sessions with the server behind {self._name!r} are in use by other "
                "callers: try again later; whoever runs this gateway can allow more, with `sessions` of that "
                "server",
                data={"upstream": self._name},
            )
        self._retire(min(idle)[1])

    async def _connect_in_turn(self, turnstile: Turnstile) -> ServerConnection:
        """Connect, but not while those that are being closed are too many together with the open ones."""
        while self._closing and len(self._closing) + len(self._of) > self._most:
            await asyncio.wait(self._closing, return_when=asyncio.FIRST_COMPLETED)
        return await self._connect(turnstile)

    def _close_later(self, principal: str, own: OwnSession) -> None:
        loop = asyncio.get_running_loop()
        own.closing_later = loop.call_later(_IDLE_SECONDS, self._close_if_idle, principal, own)

    def _close_if_idle(self, principal: str, own: OwnSession) -> None:
        if self._of.get(principal) is own and not own.calls:
            if own.is_busy:
                self._close_later(principal, own)
            else:
                self._retire(principal)

    def _retire(self, principal: str) -> None:
        own = self._of.pop(principal)
        if own.closing_later is not None:
            own.closing_later.cancel()
        self._close(own.close())

    def _discard(self, connection: ServerConnection) -> None:
        self._close(close(connection))

    def _close(self, ending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(ending)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all of them. Calls that still use one fail."""
        for principal in tuple(self._of):
            self._retire(principal)
        while self._closing:
            await asyncio.wait(self._closing)


async def ask_alive(connection: ServerConnection) -> None:
    """Whether the server is there. An error is an answer, too."""
    method = "ping" if connection.session.era == "legacy" else "server/discover"
    with contextlib.suppress(ServerError):
        await connection.exchange(ClientRequest(method, {}))


async def want_log(connection: ServerConnection) -> None:
    """Have a server of 2025 send all log messages: each client is sent those that it wants."""
    if connection.session.era == "legacy" and "logging" in connection.session.capabilities:
        with contextlib.suppress(ServerError):
            await connection.exchange(ClientRequest("logging/setLevel", {"level": "debug"}))


async def close(connection: ServerConnection) -> None:
    """End a connection, and the process of its server."""
    try:
        await asyncio.shield(connection.close(hurry=True))
    except EkidenError as error:
        _log.debug("An upstream could not be closed in order: %s", error)


def _taken(opening: "asyncio.Task[ServerConnection]") -> None:
    if not opening.cancelled():
        opening.exception()  # Taken, so that asyncio does not log it as lost.
