"""What one process serves over HTTP, and how: alone, or as one worker of several."""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

import msgspec

from ekiden.errors import EkidenError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ekiden.server.server import Server
    from ekiden.transports.server.legacy.relay import UnixRelay

__all__ = ["Job", "serve", "set_up_logging"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to serve over HTTP, and how; workers get it as an argument."""

    spec: str
    path: str = "/mcp"
    allow_hosts: list[str] = []
    allow_origins: list[str] = []
    grace: float = 10.0
    log_level: str = "warning"
    stateless_2025: bool = False
    tasks: bool = True
    """Whether the serving process also runs tasks."""


def serve(
    server: "Server",
    job: Job,
    listener: socket.socket,
    on_ready: "Callable[[], None]",
    relay: "UnixRelay | None" = None,
) -> None:
    """Serve over HTTP until a signal. `relay` passes requests of 2025 sessions to other workers."""
    from ekiden.server.serve import new_event_loop, serve_http
    from ekiden.transports.server.guard import LOCALHOST

    if job.stateless_2025:
        server.endpoint.sessions.stateless = True
    if not job.tasks:
        server.leave_tasks()
    server.stop_tasks_within(job.grace)
    application = server.asgi(
        path=job.path,
        allowed_hosts=[*LOCALHOST, *job.allow_hosts],
        allowed_origins=job.allow_origins or None,
    )
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        host, port = listener.getsockname()[:2]
        serving = serve_http(
            application,
            host=host,
            port=port,
            grace=job.grace,
            log_level=job.log_level,
            sockets=[listener],
            on_ready=on_ready,
            relay=relay,
        )
        try:
            runner.run(serving)
        except SystemExit:  # uvicorn exits so if the lifespan fails; the reason is in the log.
            raise EkidenError(f"{server.name} could not start: its lifespan failed") from None


def set_up_logging(level: str) -> None:
    """Send the log of ekiden and of the user's code to stderr."""
    logging.basicConfig(level=level.upper(), format="%(levelname)s %(name)s: %(message)s")
