"""The port between transports and the sessions of clients of 2025.

A session is made by a handshake and lives in one process. The transport carries its messages; what
they mean is the server's business.
"""

from collections.abc import AsyncIterator, Callable, Container
from typing import Protocol

from ekiden.wire.handshake import Response
from ekiden.wire.headers import Headers
from ekiden.wire.jsonrpc import Message

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

    on_end: list[Callable[[], None]]
    """Called when the session ends, for whatever reason."""

    async def answer(self, message: Message, headers: Headers | None, line: Line) -> bytes:
        """The response to a request. Raises nothing but cancellation."""
        ...

    def notified(self, message: Message) -> None:
        """Take a notification."""
        ...

    def responded(self, response: Response) -> None:
        """Take the answer to a request of ours."""
        ...

    def changes(self) -> AsyncIterator[bytes]:
        """What is to be told outside of requests: lists and resources that changed."""
        ...

    def hold(self) -> None:
        """A stream is open: the session is in use."""
        ...

    def let_go(self) -> None:
        """A stream that was held has ended."""
        ...

    def end(self) -> None:
        """End the session: what runs is cancelled."""
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

    def open(self, message: Message, headers: Headers | None) -> tuple[ClientSession, bytes]:
        """A session for an `initialize` request, and the response; a `ProtocolError` or `SessionsFull`."""
        ...

    def find(self, session_id: str, headers: Headers) -> ClientSession | None:
        """The session of that id, if it is open and belongs to the principal of the request."""
        ...

    def passing(self, version: str) -> ClientSession:
        """A session for one request only, of a server that keeps none."""
        ...
