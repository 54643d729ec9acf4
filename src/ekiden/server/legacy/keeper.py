"""What sessions need of whoever keeps them, and what their clients may take."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias

import msgspec

from ekiden.rounds.outcome import Outcome
from ekiden.server.registration.registry import Registry
from ekiden.transports.server.port import Stream
from ekiden.wire.modern import Request

__all__ = ["Answering", "Keeper", "News", "SessionLimits"]

News: TypeAlias = Callable[[], Awaitable[dict[str, Any] | None]]
"""A task as it is now, for its notification; None if that is no news."""


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What clients of 2025 may take of a server."""

    sessions: int = 10_000
    """Sessions that may be open in one process. Each is a few KB."""
    per_principal: int = 1000
    """How many of them one principal may have, so that nobody takes them all: as a busy gateway has, not
    more. Where nobody is told apart (`Server(principal=None)`), this bounds nothing."""
    idle_seconds: float = 1800.0
    """A session that nobody has used for this long is ended: its client shakes hands anew."""
    busy_seconds: float = 60.0
    """Where there are too many, one that was used this recently is not ended for a new one."""
    ask_seconds: float = 600.0
    """How long a client may take to answer a question: a user reads, thinks and clicks."""


class Answering(Protocol):
    """What sessions need of the endpoint."""

    def at_once(self, request: Request) -> Outcome | None:
        """The outcome, where it lies ready."""
        ...

    def answer(self, request: Request, stream: Stream) -> Coroutine[Any, Any, Outcome]:
        """Answer one request."""
        ...

    def left(self, session: object) -> None:
        """A session has ended: what waits for its client is given up."""
        ...


class Keeper(Protocol):
    """The part of `Sessions` that a `Session` calls."""

    @property
    def endpoint(self) -> Answering:
        """Who answers requests."""
        ...

    @property
    def registry(self) -> Registry:
        """What the server offers."""
        ...

    @property
    def limits(self) -> SessionLimits:
        """What a client may take."""
        ...

    def offers_tasks(self, method: str, version: str) -> bool:
        """Whether a method of tasks is answered in a session of that version."""
        ...

    def offers(self, method: str, *, kept: bool) -> bool:
        """Whether a method is answered in a session."""
        ...

    def forget(self, session_id: str, principal: str) -> None:
        """The session of that id, and of that principal, has ended."""
        ...
