"""The port between transports and the server: two small protocols, one on each side."""

from collections.abc import Container, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ekiden.rounds.outcome import Dialect, Outcome
from ekiden.transports.server.legacy.port import SessionKeeper
from ekiden.wire.modern import Request

__all__ = ["Endpoint", "Stream"]


class Stream(Protocol):
    """The way back to the client while a request is being answered."""

    @property
    def can_notify(self) -> bool:
        """Whether the client takes notifications at all; if not, they are dropped."""
        ...

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification that belongs to the request; waits while the client is slow."""
        ...


class Endpoint(Protocol):
    """What a transport sees of a server."""

    @property
    def methods(self) -> Container[str]:
        """The methods it answers."""
        ...

    @property
    def dialect(self) -> Dialect:
        """How it spells its answers."""
        ...

    @property
    def sessions(self) -> SessionKeeper:
        """Its clients of 2025."""
        ...

    def at_once(self, request: Request) -> Outcome | None:
        """The outcome, where it lies ready and nobody wants to look at the request first."""
        ...

    def answer(self, request: Request, stream: Stream) -> Coroutine[Any, Any, Outcome]:
        """Answer one request. Raises nothing but cancellation."""
        ...

    def runs_apart(self, request: Request) -> bool:
        """Whether `answer` runs what is not ours, handlers above all, in a task of its own."""
        ...

    async def start(self) -> None:
        """Get ready to answer; harmless when ready."""
        ...

    def in_use(self) -> AbstractAsyncContextManager[None]:
        """Be ready while the block runs, together with all others who use it."""
        ...

    async def stop(self) -> None:
        """End long streams gracefully, then release what `start` acquired."""
        ...

    def drain(self) -> None:
        """End long streams gracefully; other requests go on."""
        ...
