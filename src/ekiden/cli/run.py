"""`ekiden run`: serve the server of a file, in this process or in several workers."""

import asyncio
import contextlib
import errno
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ekiden.cli.keys import check_keys, provide_key, use_keys_file
from ekiden.cli.loading import load_server, start_lines
from ekiden.cli.serving.job import Job, serve, set_up_logging
from ekiden.cli.terminal.screen import say
from ekiden.errors import UsageError

if TYPE_CHECKING:
    from ekiden.server.server import Server

__all__ = ["RunOptions", "listen", "serve_file"]

_BACKLOG: Final = 2048
"""Connections that may wait to be accepted: as uvicorn's own."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `ekiden run` was told beside the job of each process that serves."""

    stdio: bool
    host: str
    port: int
    workers: int
    store: str | None
    reload: bool
    keys_file: Path | None


def serve_file(job: Job, options: RunOptions) -> None:
    """Serve until interrupted."""
    _check(job, options)
    use_keys_file(options.keys_file)
    check_keys()
    if options.store is not None:
        _check_store(options)
        os.environ["EKIDEN_STORE"] = options.store
    set_up_logging(job.log_level)
    if options.stdio:
        return _serve_stdio(_loaded(job), job.grace)
    with contextlib.ExitStack() as stack:
        listeners = listen(options.host, options.port, options.workers)
        for listener in listeners:
            stack.enter_context(listener)
        _warn_of_hosts(job, options)
        if options.workers > 1 or options.reload:
            return _serve_with_workers(job, options, listeners)
        server = _loaded(job)
        served = f"{server.name} is served at {_url(job, options.host, listeners[0])}"
        return serve(server, job, listeners[0], lambda: say(served))


def _loaded(job: Job) -> "Server":
    """The server of the file; what could not be carried of it is said at once."""
    server = load_server(job.spec, job.carrying)
    for line in start_lines(server):
        say(line)
    return server


def _check(job: Job, options: RunOptions) -> None:
    if options.workers > 1 and job.carrying.resume == "parked":
        raise UsageError(
            "--resume parked keeps a call in the process that began it: leave --workers out, or have calls "
            "begun anew in every round with --resume replay"
        )
    if options.stdio and (options.workers > 1 or options.reload):
        raise UsageError("--stdio serves one client in one process: leave --workers and --reload out")
    _check_http(job, options)
    if (options.workers > 1 or options.reload) and sys.platform == "win32":
        raise UsageError("--workers and --reload do not work on Windows: serve in one process")


def _check_http(job: Job, options: RunOptions) -> None:
    if options.stdio and (job.access_log or job.tls_cert or job.tls_key or job.max_connections):
        raise UsageError("--access-log, --tls-cert and --max-connections are about HTTP: leave --stdio out")
    if job.tls_cert or job.tls_key:
        from ekiden.server.operations.tls import check_certificate

        check_certificate(job.tls_cert, job.tls_key)


def _check_store(options: RunOptions) -> None:
    from ekiden.stores import open_store

    open_store(options.store or "")
    if options.store == "memory:" and options.workers > 1:
        raise UsageError("--store memory: belongs to one process: workers need sqlite:///path")


# Serving


def listen(host: str, port: int, count: int) -> list[socket.socket]:
    """Listening sockets. Called before anything is loaded, so that a taken port is reported at once.

    On Linux each worker gets a socket of its own, and the kernel spreads connections over them. With a
    single one, nearly all connections would go to the worker that wakes up first.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        first = _bound(family, address)
        if count == 1 or not sys.platform.startswith("linux"):
            return [_listening(first)]
        address = first.getsockname()
        first.close()  # It was bound without sharing, so no other program listens here.
        return [_listening(_bound(family, address, shared=True)) for _ in range(count)]
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {host} is taken; choose another with --port") from error
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _bound(family: int, address: Any, *, shared: bool = False) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _listening(bound: socket.socket) -> socket.socket:
    bound.listen(_BACKLOG)
    return bound


def _serve_stdio(server: "Server", grace: float) -> None:
    from ekiden.server.serving.loop import new_event_loop
    from ekiden.transports.server.stdio import serve_stdio

    server.stop_tasks_within(grace)
    server.serve_one_client()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve_stdio(server.endpoint, grace=grace))


def _serve_with_workers(job: Job, options: RunOptions, listeners: list[socket.socket]) -> None:
    from ekiden.cli.serving.supervisor import Report, Supervisor

    made_key = provide_key()
    url = _url(job, options.host, listeners[0])

    def on_ready(report: Report) -> None:
        for line in report.lines:
            say(line)
        workers = f"{options.workers} workers" if options.workers > 1 else "one worker"
        say(f"{report.name} is served at {url} by {workers} of process {os.getpid()}")
        if made_key:
            say("no keys are set: calls that are open when this ends are lost; see `ekiden keys new`")

    Supervisor(job, listeners, options.workers, reload=options.reload, on_ready=on_ready).run()


def _url(job: Job, host: str, listener: socket.socket) -> str:
    host = f"[{host}]" if ":" in host else host
    scheme = "http" if job.tls_cert is None else "https"
    return f"{scheme}://{host}:{listener.getsockname()[1]}{job.path}"


def _warn_of_hosts(job: Job, options: RunOptions) -> None:
    if options.host not in ("127.0.0.1", "::1", "localhost") and not job.allow_hosts:
        say("only localhost may be called; name others with --allow-host NAME, or --allow-host '*'")
