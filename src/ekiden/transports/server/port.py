"""The port between transports and the server: two small protocols, one on each side."""

from collections.abc import Container, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from ekiden.rounds.outcome import Complete, Dialect, Failed, Outcome
from ekiden.transports.server.legacy.port import SessionKeeper
from ekiden.wire.modern import Request

__all__ = ["Endpoint", "Ready", "Stream"]

Ready: TypeAlias = Complete | Failed
"""An outcome that needs no wait: a list, a discovery, or what is wrong with the request for one."""


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

    def begin(self, request: Request, stream: Stream) -> Ready | Coroutine[Any, Any, Outcome]:
        """The outcome if it is known already, else the coroutine that answers. Call it in a task."""
        ...

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer one request. Raises nothing but cancellation."""
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
