"""Makes the connections of one application: what uvicorn calls for each client."""

import asyncio
from typing import TYPE_CHECKING, Any

from ekiden.transports.server.asgi import StreamableHTTP
from ekiden.transports.server.http1.connection import Connection
from ekiden.transports.server.http1.crowd import Crowd, default_cap
from ekiden.transports.server.http1.unread import Unread

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

__all__ = ["Connections"]


class Connections:
    """Makes the connections of one application."""

    def __init__(self, application: StreamableHTTP, kind: type[Connection] | None = None) -> None:
        self._application = application
        self._kind = kind or Connection
        limits = application.limits
        seconds = max(0.05, min(1.0, limits.body_seconds / 4))
        most = default_cap() if limits.connections is None else limits.connections
        self.crowd = Crowd(seconds, most, limits.connections_per_address)
        self._unread = Unread(limits.unread)

    def __call__(
        self,
        config: "Config",
        server_state: "ServerState",
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> Connection:
        """A connection; the signature is uvicorn's."""
        loop = _loop or asyncio.get_running_loop()
        keep_alive = float(config.timeout_keep_alive)
        return self._kind(self._application, self.crowd, self._unread, server_state, loop, keep_alive)
