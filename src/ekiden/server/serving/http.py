"""Running a server by itself: uvicorn with uvloop, our own HTTP/1.1, and a shutdown that drains."""

import asyncio
import contextlib
import functools
import gc
import logging
import socket
from collections.abc import Callable, Generator
from typing import Any, Final

import uvicorn

from ekiden.errors import UsageError
from ekiden.server.operations.tls import check_certificate
from ekiden.server.serving.loop import on_hangup as calling_on_hangup
from ekiden.transports.server.asgi import StreamableHTTP
from ekiden.transports.server.http1 import access
from ekiden.transports.server.http1.connection import Connection
from ekiden.transports.server.http1.connections import Connections
from ekiden.transports.server.http1.crowd import Crowd
from ekiden.transports.server.http1.handshakes import TlsListener
from ekiden.transports.server.legacy.relay import UnixRelay
from ekiden.transports.server.listeners import listening_often

__all__ = ["serve_http"]

_log = logging.getLogger(__name__)

_QUIET_SECONDS: Final = 0.3
"""Calls that end this soon after the signal are not worth a line."""
_MOST_NAMED: Final = 5
"""Calls that the line names; of others only the number is given."""

_YOUNG: Final = 10_000
"""How many new objects set off the garbage collector. The 700 of Python 3.11 are what a dozen rounds hold
while their handlers begin: it would look at them over and over, and find nothing."""


class _Draining(uvicorn.Server):
    """Ends subscriptions before it waits for connections: they would not end by themselves."""

    def __init__(
        self,
        config: uvicorn.Config,
        application: StreamableHTTP,
        on_ready: Callable[[], None] | None,
        relay: UnixRelay | None,
        crowd: Crowd,
    ) -> None:
        super().__init__(config)
        self._application = application
        self._on_ready = on_ready
        self._relay = relay
        self._crowd = crowd

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        with _own_listeners(asyncio.get_running_loop(), self._crowd):
            await super().startup(sockets)
        if self.started and self._relay is not None:
            self.servers.append(await self._relay.listen(self._connection))
        if self.started and self._on_ready is not None:
            self._on_ready()
        # Objects that exist now live as long as the process: exclude them from garbage collection.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])

    def _connection(self) -> asyncio.BaseProtocol:
        """A connection from another worker, served like those of clients."""
        make: Any = self.config.http_protocol_class
        protocol: asyncio.BaseProtocol = make(self.config, self.server_state, self.lifespan.state)
        return protocol

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.endpoint.drain()
        telling = asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._tell_what_runs)
        try:
            await super().shutdown(sockets)
        finally:
            telling.cancel()

    def _tell_what_runs(self) -> None:
        """Log what the shutdown waits for."""
        open_: Any = self.server_state.connections
        running = [each.answers for each in open_ if isinstance(each, Connection) and each.answers]
        if running:
            named = ", ".join(running[:_MOST_NAMED]) + (", ..." if len(running) > _MOST_NAMED else "")
            _log.warning(
                "Waiting up to %g s for %d running call%s (%s); Ctrl-C again ends at once",
                self.config.timeout_graceful_shutdown,
                len(running),
                "s" if len(running) > 1 else "",
                named,
            )


@contextlib.contextmanager
def _own_listeners(loop: Any, crowd: Crowd) -> Generator[None, None, None]:
    """Have many connections accepted at once on what is listened to meanwhile, and the crowd count TLS
    handshakes: uvicorn has no option."""
    create = loop.create_server

    async def create_server(make: Any, *, ssl: Any = None, backlog: int = 100, **options: Any) -> Any:
        if ssl is None:
            server = await create(make, backlog=backlog, **options)
            return await listening_often(server, functools.partial(create, make, backlog=backlog))
        server = await create(make, backlog=backlog, start_serving=False, **options)
        return TlsListener(server, make, ssl, crowd, backlog)

    loop.create_server = create_server
    try:
        yield
    finally:
        del loop.create_server


async def serve_http(
    application: StreamableHTTP,
    *,
    host: str,
    port: int,
    grace: float,
    log_level: str,
    access_log: bool = False,
    sockets: list[socket.socket] | None = None,
    on_ready: Callable[[], None] | None = None,
    relay: UnixRelay | None = None,
    on_hangup: Callable[[], None] | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    **uvicorn_options: Any,
) -> None:
    """Serve until a signal; running calls then have `grace` seconds to finish.

    `sockets`, which must listen already and may be shared with other workers, replace `host` and `port`.
    `on_ready` is called when the server can answer. `relay` connects to the other workers, for clients
    of 2025 whose session is in one of them. With `access_log`, one line is logged for each response.
    `on_hangup` is called on SIGHUP; without it that signal ends the process, as usual. With `tls_cert`
    the server speaks HTTPS, with uvicorn's versions and ciphers.
    """
    if access_log:
        logging.getLogger(access.__name__).setLevel(logging.INFO)
    if relay is not None:
        application.legacy.relay = relay
        application.endpoint.sessions.prefix = relay.prefix
    if tls_cert is not None or tls_key is not None:
        check_certificate(tls_cert, tls_key)
    connections = Connections(application, access.LoggedConnection if access_log else None)
    if relay is not None:
        relay.descriptors = connections.crowd
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http=connections,  # type: ignore[arg-type]  # makes protocols, as their class would
        lifespan="on",
        access_log=False,
        server_header=False,
        log_level=log_level,
        timeout_graceful_shutdown=max(1, round(grace)),
        timeout_keep_alive=max(1, round(application.limits.keep_alive_seconds)),
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        **uvicorn_options,
    )
    if sockets is None:
        _check_address(host, port)
    with calling_on_hangup(on_hangup):
        await _Draining(config, application, on_ready, relay, connections.crowd).serve(sockets)


def _check_address(host: str, port: int) -> None:
    """Fail early, with a clear message, if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
