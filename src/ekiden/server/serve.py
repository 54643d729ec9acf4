"""Running a server by itself: uvicorn with uvloop, our own HTTP/1.1, and a shutdown that drains."""

import asyncio
import gc
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from ekiden.errors import UsageError
from ekiden.transports.server.asgi import StreamableHTTP
from ekiden.transports.server.http1.connection import Connections
from ekiden.transports.server.legacy.relay import UnixRelay

__all__ = ["serve_http"]


class _Draining(uvicorn.Server):
    """Ends subscriptions before it waits for connections: they would not end by themselves."""

    def __init__(
        self,
        config: uvicorn.Config,
        application: StreamableHTTP,
        on_ready: Callable[[], None] | None,
        relay: UnixRelay | None,
    ) -> None:
        super().__init__(config)
        self._application = application
        self._on_ready = on_ready
        self._relay = relay

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._relay is not None:
            self.servers.append(await self._relay.listen(self._connection))
        if self.started and self._on_ready is not None:
            self._on_ready()
        # Objects that exist now live as long as the process: exclude them from garbage collection.
        gc.collect()
        gc.freeze()

    def _connection(self) -> asyncio.BaseProtocol:
        """A connection from another worker, served like those of clients."""
        make: Any = self.config.http_protocol_class
        protocol: asyncio.BaseProtocol = make(self.config, self.server_state, self.lifespan.state)
        return protocol

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.endpoint.drain()
        await super().shutdown(sockets)


async def serve_http(
    application: StreamableHTTP,
    *,
    host: str,
    port: int,
    grace: float,
    log_level: str,
    sockets: list[socket.socket] | None = None,
    on_ready: Callable[[], None] | None = None,
    relay: UnixRelay | None = None,
    **uvicorn_options: Any,
) -> None:
    """Serve until a signal; running calls then have `grace` seconds to finish.

    `sockets`, which must listen already and may be shared with other workers, replace `host` and `port`.
    `on_ready` is called when the server can answer. `relay` connects to the other workers, for clients
    of 2025 whose session is in one of them.
    """
    if relay is not None:
        application.legacy.relay = relay
        application.endpoint.sessions.prefix = relay.prefix
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http=Connections(application),  # type: ignore[arg-type]  # makes protocols, as their class would
        lifespan="on",
        access_log=False,
        server_header=False,
        log_level=log_level,
        timeout_graceful_shutdown=max(1, round(grace)),
        **uvicorn_options,
    )
    if sockets is None:
        _check_address(host, port)
    await _Draining(config, application, on_ready, relay).serve(sockets)


def _check_address(host: str, port: int) -> None:
    """Fail early, with a clear message, if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop if it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
