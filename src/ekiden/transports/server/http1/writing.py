"""The way back to the client of one connection: whether it reads, and what every response has."""

import abc
import asyncio
from typing import TYPE_CHECKING, Any

from ekiden.transports.server.http1.unread import Unread

if TYPE_CHECKING:
    from uvicorn.server import ServerState

__all__ = ["ResponseWriter"]


class ResponseWriter(abc.ABC):
    """Knows how much of the responses the client has not taken yet."""

    transport: Any
    """The transport of asyncio or uvloop, once the client is here."""
    network: str | None = None
    """Whose the connection is."""

    def __init__(self, unread: Unread, state: "ServerState", loop: asyncio.AbstractEventLoop) -> None:
        self._all_unread = unread
        self.state = state
        self.loop = loop
        self._common_list: list[tuple[bytes, bytes]] | None = None
        self._common = b""
        self._unsent = 0
        self._moved = loop.time()
        """When the client last took anything of what is `_unsent`."""
        self.writable: asyncio.Future[None] | None = None
        """Done when the client reads again; None while it does."""

    @abc.abstractmethod
    def _caught_up(self) -> None:
        """The client reads again: more can be written."""

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        if self.writable is None:
            self.writable = self.loop.create_future()
            self.count_unsent()

    def count_unsent(self) -> None:
        """Count what the client has not taken yet."""
        self._all_unread.hold(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self.writable is not None:
            self._all_unread.release(self)
            self.writable.set_result(None)
            self.writable = None
            self._caught_up()

    def _seconds_stalled(self, now: float) -> float:
        """For how long the client has taken nothing, as far as is known; zero if it has taken all."""
        unsent: int = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent, self._moved = unsent, now
            if self.writable is not None:
                self._all_unread.hold(self, unsent)
        return now - self._moved if unsent else 0.0

    def common_headers(self) -> bytes:
        """The headers that every response has. uvicorn makes a new list of them for every second's date."""
        if self.state.default_headers is not self._common_list:
            self._common_list = self.state.default_headers
            self._common = b"".join(b"%b: %b\r\n" % header for header in self._common_list)
        return self._common
