"""What one process serves over HTTP, and how: alone, or as one worker of several."""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

import msgspec

from ekiden.cli.loading import Carrying
from ekiden.cli.terminal.screen import HarmlessFormatter
from ekiden.errors import EkidenError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ekiden.bus.port import Bus
    from ekiden.server.server import Server
    from ekiden.transports.server.legacy.relay import UnixRelay

__all__ = ["Job", "serve", "set_up_logging"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to serve over HTTP, and how; workers get it as an argument."""

    spec: str
    carrying: Carrying = Carrying()
    """How it is carried, if it is a server of another SDK."""
    path: str = "/mcp"
    allow_hosts: list[str] = []
    allow_origins: list[str] = []
    trusted_proxies: list[str] = []
    grace: float = 10.0
    log_level: str = "warning"
    access_log: bool = False
    stateless_2025: bool = False
    tasks: bool = True
    """Whether the serving process also runs tasks."""
    max_connections: int | None = None
    max_connections_per_address: int | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    metrics_port: int | None = None
    """Where Prometheus can fetch the metrics of this process."""
    record: bool = False
    """Whether what happens to calls is recorded: for the pages of `ekiden dev`."""
    show_trace: bool = False
    """Whether the trace is shown if the file cannot be loaded."""


def serve(
    server: "Server",
    job: Job,
    listener: socket.socket,
    on_ready: "Callable[[], None]",
    relay: "UnixRelay | None" = None,
    bus: "Bus | None" = None,
) -> None:
    """Serve over HTTP until a signal.

    `relay` passes requests of 2025 sessions to other workers, `bus` tells them of changes.
    """
    from ekiden.server.serving.http import serve_http
    from ekiden.server.serving.loop import new_event_loop
    from ekiden.telemetry.prometheus import serve_metrics
    from ekiden.transports.server.asgi import HttpLimits
    from ekiden.transports.server.guard import LOCALHOST

    if job.stateless_2025:
        server.endpoint.sessions.stateless = True
    if job.metrics_port is not None:
        serve_metrics(job.metrics_port)
    if job.record and server.stories is None:
        server.record()
    if not job.tasks:
        server.leave_tasks()
    server.stop_tasks_within(job.grace)
    if bus is not None:
        server.share_changes(bus)
    application = server.asgi(
        path=job.path,
        allowed_hosts=[*LOCALHOST, *job.allow_hosts],
        allowed_origins=job.allow_origins or None,
        limits=HttpLimits(
            connections=job.max_connections, connections_per_address=job.max_connections_per_address
        ),
        trusted_proxies=job.trusted_proxies,
    )
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        host, port = listener.getsockname()[:2]
        serving = serve_http(
            application,
            host=host,
            port=port,
            grace=job.grace,
            log_level=job.log_level,
            access_log=job.access_log,
            sockets=[listener],
            on_ready=on_ready,
            relay=relay,
            tls_cert=job.tls_cert,
            tls_key=job.tls_key,
            on_hangup=server.renew_keys if server.renews_keys else None,
        )
        try:
            runner.run(serving)
        except SystemExit:  # uvicorn exits so if the lifespan fails; the reason is in the log.
            raise EkidenError(f"{server.name} could not start; the reason is above") from None


def set_up_logging(level: str) -> None:
    """Send the log of ekiden and of the user's code to stderr.

    That of HTTP requests which are sent names whole URLs, which may be secrets: it is for debugging.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(HarmlessFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if logging.getLogger().level > logging.DEBUG:
        logging.getLogger("httpx2").setLevel(logging.WARNING)
