"""The interfaces that a session calls, and the limits for its clients."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias

import msgspec

from ekiden.errors import ProtocolError
from ekiden.rounds.outcome import Outcome
from ekiden.server.outgoing import Outlet
from ekiden.server.registration.registry import Registry
from ekiden.sessions.logs import StreamLogs
from ekiden.transports.server.large.results import LargeResults
from ekiden.transports.server.port import Stream
from ekiden.wire.json import JsonObject
from ekiden.wire.modern import Request

__all__ = ["Answering", "Keeper", "News", "SessionLimits"]

News: TypeAlias = Callable[[], Awaitable[JsonObject | None]]
"""Returns the parameters of a task's notification; None if nothing changed since the last one."""


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the sessions of clients of 2025."""

    sessions: int = 10_000
    """Sessions that may be open in one process. Each is a few KB. A quarter more may be of clients that have
    almost none."""
    per_principal: int = 1000
    """Sessions of one principal, so that none can take all of them; a busy gateway needs many. Has no effect
    with `Server(principal=None)`: there, an address that opens many ends only its own to make room."""
    idle_seconds: float = 1800.0
    """A session that was unused for this long is ended. Its client has to initialize again."""
    busy_seconds: float = 60.0
    """A session that was used within this time is not ended to make room for a new one."""
    ask_seconds: float = 600.0
    """How long a client may take to answer a question: a user reads, thinks and clicks."""


class Answering(Protocol):
    """The part of the endpoint that sessions call."""

    large: LargeResults
    """Its results that are so large that they wait for one another."""

    def answer(self, request: Request, stream: Stream) -> Coroutine[Any, Any, Outcome]:
        """Answer one request."""
        ...

    @property
    def outlet(self) -> Outlet:
        """Whoever sees what is sent."""
        ...

    @property
    def is_watched(self) -> bool:
        """Whether middleware sees every message."""
        ...

    async def admit(self, request: Request, go_on: Callable[[], object]) -> ProtocolError | None:
        """Show a message that is not a request to the middleware; the error if it is refused."""
        ...

    async def admit_opening(
        self, request: Request, opening: Callable[[Request, Stream], Coroutine[Any, Any, Outcome]]
    ) -> Outcome:
        """Show an `initialize` to the middleware; `opening` answers it if it passes."""
        ...

    def session_ended(self, session: object) -> None:
        """Cancel the handlers that wait for the client of a session, because it has ended."""
        ...


class Keeper(Protocol):
    """The part of `Sessions` that a `Session` calls."""

    @property
    def endpoint(self) -> Answering:
        """Answers requests."""
        ...

    @property
    def registry(self) -> Registry:
        """What the server offers."""
        ...

    @property
    def limits(self) -> SessionLimits:
        """The limits for clients."""
        ...

    @property
    def logs(self) -> StreamLogs | None:
        """The events of streams that several processes share."""
        ...

    def offers_tasks(self, method: str, version: str) -> bool:
        """Whether a `tasks/` method is answered in a session of that version."""
        ...

    def offers(self, method: str, *, kept: bool) -> bool:
        """Whether a method is answered in a session. `kept` is False for a session of one request."""
        ...

    def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        ...
