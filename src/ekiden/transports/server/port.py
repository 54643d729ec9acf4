"""The port between transports and the server: two small protocols, one on each side."""

from collections.abc import Container, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from ekiden.errors import ProtocolError
from ekiden.rounds.outcome import Complete, Dialect, Failed, Outcome
from ekiden.transports.server.large.results import LargeResults
from ekiden.transports.server.legacy.port import SessionKeeper
from ekiden.wire.incoming import Incoming
from ekiden.wire.jsonrpc import Message
from ekiden.wire.modern import Request
from ekiden.wire.principal import Principal

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

    large: LargeResults
    """Its results that are so large that they wait for one another."""

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

    @property
    def local(self) -> Principal | None:
        """Who sends what comes over stdio and in memory, unless the channel knows better."""
        ...

    def begin(self, request: Request, stream: Stream) -> Ready | Coroutine[Any, Any, Outcome]:
        """The outcome if it is known already, else the coroutine that answers. Call it in a task."""
        ...

    @property
    def is_watched(self) -> bool:
        """Whether notifications must be shown with `notified` before they count."""
        ...

    async def notified(
        self, message: Message, incoming: Incoming | None, session: str | None
    ) -> ProtocolError | None:
        """Show a notification of a client of 2026 to the middleware; the error if it is refused."""
        ...

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer one request. Raises nothing but cancellation."""
        ...

    def forget_a_closed_loop(self) -> None:
        """Get ready anew with the next request, if the event loop is closed in which that was done before."""
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
