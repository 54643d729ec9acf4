"""One worker of `ekiden run --workers`; the supervisor starts this module with `python -m`."""

import contextlib
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import msgspec

from ekiden.bus.sockets import SocketBus
from ekiden.cli.loading import load_server, start_lines, trace_of
from ekiden.cli.serving.job import serve, set_up_logging
from ekiden.cli.serving.supervisor import Report, WorkerArguments
from ekiden.errors import EkidenError, UsageError
from ekiden.transports.server.legacy.relay import UnixRelay

__all__ = ["main"]


def main() -> None:
    """Load the server, serve, and end when the parent ends."""
    task = msgspec.json.decode(sys.argv[1], type=WorkerArguments)
    set_up_logging(task.job.log_level)
    line = _inherited(task.line)
    threading.Thread(target=_end_with_parent, args=(line,), name="ekiden-parent", daemon=True).start()
    try:
        with _inherited(task.listener) as listener:
            server = load_server(task.job.spec, task.job.carrying)
            relay = UnixRelay(task.folder, task.name)
            bus = SocketBus(Path(task.folder, "bus"))
            lines = start_lines(server)
            report = Report(name=server.name, renews=server.renews_keys, lines=lines, store=server.store_name)
            serve(server, task.job, listener, lambda: _report(line, report), relay, bus)
    except EkidenError as error:
        if task.job.show_trace and error.__cause__ is not None:
            sys.stderr.write(trace_of(error.__cause__))
        _report(line, Report(failure=str(error), usage=isinstance(error, UsageError)))
        sys.exit(2)


def _inherited(descriptor: int) -> socket.socket:
    """An inherited socket, which child processes of the server do not inherit in turn."""
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def _report(line: socket.socket, report: Report) -> None:
    with contextlib.suppress(OSError):  # The parent is gone: `_end_with_parent` ends this process.
        line.sendall(msgspec.json.encode(report) + b"\n")


def _end_with_parent(line: socket.socket) -> None:
    """The parent never writes: when `recv` returns, the parent has ended."""
    line.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
