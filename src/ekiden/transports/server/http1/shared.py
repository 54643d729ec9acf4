"""What the connections of one application have in common: their timer, their turns, what they remember."""

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import httptools

if TYPE_CHECKING:
    from uvicorn.server import ServerState

    from ekiden.transports.server.asgi import StreamableHTTP
    from ekiden.transports.server.http1.connection import Connection
    from ekiden.transports.server.http1.exchange import Exchange

__all__ = ["Refused", "Shared"]

_PATHS: Final = 256
"""Spellings of paths that are remembered."""


class Refused(Exception):
    """The request is refused before it is whole: status and reason."""


class Shared:
    """Knows all connections of one application: closes those that only sit there, answers what is whole."""

    def __init__(self, application: "StreamableHTTP") -> None:
        self.application = application
        self.limits = application.limits
        self._paths: dict[bytes, str] = {}
        self._default_headers: list[tuple[bytes, bytes]] | None = None
        self._spelled = b""
        self._sweeping: asyncio.TimerHandle | None = None
        self._open: set[Connection] = set()
        self._whole: list[tuple[Connection, Exchange]] = []
        """Requests that are to be answered."""
        self._every = max(0.05, min(1.0, self.limits.body_seconds / 4))

    def path(self, url: bytes) -> str:
        """The path of a request's target."""
        known = self._paths.get(url)
        if known is None:
            try:
                known = unquote((httptools.parse_url(url).path or b"/").decode("latin-1"))
            except httptools.HttpParserInvalidURLError:
                raise Refused(400, "The request's target is no URL") from None
            if len(self._paths) < _PATHS:
                self._paths[url] = known
        return known

    def common(self, state: "ServerState") -> bytes:
        """The headers that every response has: uvicorn makes them anew every second, for the date."""
        if state.default_headers is not self._default_headers:
            self._default_headers = state.default_headers
            self._spelled = b"".join(b"%b: %b\r\n" % header for header in state.default_headers)
        return self._spelled

    def enter(self, connection: "Connection", loop: asyncio.AbstractEventLoop) -> None:
        """A connection was made."""
        self._open.add(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._every, self._sweep, loop)

    def soon(self, connection: "Connection", exchange: "Exchange") -> None:
        """Have a request answered when all that came in with it is read: many in a row cost less each."""
        if not self._whole:
            connection.loop.call_soon(self._answer)
        self._whole.append((connection, exchange))

    def _answer(self) -> None:
        whole, self._whole = self._whole, []
        for connection, exchange in whole:
            connection.run(exchange)

    def leave(self, connection: "Connection") -> None:
        """A connection is gone."""
        self._open.discard(connection)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        # One timer for all: one for each request would cost more than to look at every connection.
        now = loop.time()
        for connection in tuple(self._open):
            connection.look(now)
        self._sweeping = loop.call_later(self._every, self._sweep, loop) if self._open else None
