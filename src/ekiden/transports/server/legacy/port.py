"""The port between transports and the sessions of clients of 2025.

A session is made by a handshake. It lives in one process, or in a store that several share. The transport
carries its messages; what they mean is the server's business.
"""

from collections.abc import AsyncIterator, Callable, Container
from typing import Protocol

from ekiden.errors import ProtocolError, StatusError
from ekiden.sessions.logs import StreamLogs
from ekiden.wire.handshake import Response
from ekiden.wire.incoming import Incoming
from ekiden.wire.jsonrpc import Message
from ekiden.wire.principal import Principal

__all__ = ["ClientSession", "Line", "SessionKeeper"]


class Line(Protocol):
    """Where the messages go that belong to one request."""

    @property
    def can_stream(self) -> bool:
        """Whether anything but the response can be sent."""
        ...

    async def send(self, message: bytes) -> None:
        """Send a request or a notification; waits while the client is slow."""
        ...

    def fail(self, error: StatusError) -> None:
        """The response is an error that over HTTP has a status and headers of its own."""
        ...

    def hang_up(self) -> None:
        """Close the connection, not the stream: the client comes back for the rest."""
        ...


class ClientSession(Protocol):
    """One client of 2025."""

    @property
    def id(self) -> str:
        """What the client names it by."""
        ...

    @property
    def version(self) -> str:
        """The version that was agreed on."""
        ...

    local: Principal | None
    """Who sends its messages where they do not come over HTTP."""
    on_end: list[Callable[[], None]]
    """Called when the session ends in this process, for whatever reason."""
    on_detach: list[Callable[[], None]]
    """Called when its client reads its stream for changes in another process."""

    @property
    def logs(self) -> StreamLogs | None:
        """Where the events of its streams are kept for other processes; None if it lives in this one."""
        ...

    async def answer(self, message: Message, incoming: Incoming | None, line: Line) -> bytes:
        """The response to a request. Raises nothing but cancellation."""
        ...

    async def take(self, message: Message | Response, incoming: Incoming | None) -> ProtocolError | None:
        """Take a notification, or the answer to a request of ours; the error if it is refused.

        When this returns, the message has reached the process that it concerns.
        """
        ...

    async def admits(self, method: str, incoming: Incoming) -> ProtocolError | None:
        """Whether a GET or DELETE may go on; the error if it is refused."""
        ...

    def changes(self, reader: Principal | None) -> AsyncIterator[bytes]:
        """What is to be told outside of requests: lists, resources and tasks that changed.

        `reader` is who reads it: a token may grant less than the one that a resource was subscribed to with.
        """
        ...

    def hold(self) -> None:
        """A stream is open: the session is in use."""
        ...

    def let_go(self) -> None:
        """A stream that was held has ended."""
        ...

    def end(self) -> None:
        """End the session in this process: what runs is cancelled."""
        ...

    async def delete(self) -> None:
        """End the session in all processes."""
        ...


class SessionKeeper(Protocol):
    """The sessions of a server."""

    prefix: str
    """What the ids of new sessions begin with: the name of this worker, where there are several."""

    @property
    def spoken(self) -> Container[str]:
        """The versions that begin with a handshake."""
        ...

    @property
    def stateless(self) -> bool:
        """Whether clients of 2025 are served without sessions."""
        ...

    async def welcome(
        self, message: Message, incoming: Incoming | None
    ) -> tuple[ClientSession | None, bytes]:
        """A session for an `initialize` request, and the response; a `ProtocolError` or `SessionsFull`.

        None if the request is refused. The response is empty if it is not to be sent.
        """
        ...

    async def find(self, session_id: str, incoming: Incoming) -> ClientSession | None:
        """The session of that id, if it is open and belongs to the principal of the request."""
        ...

    def passing(self, version: str) -> ClientSession:
        """A session for one request only, of a server that keeps none."""
        ...
