"""One worker of `ekiden run --workers`; the supervisor starts this module with `python -m`."""

import contextlib
import os
import signal
import socket
import sys
import threading

import msgspec

from ekiden.cli.loading import load_server
from ekiden.cli.serving.job import serve, set_up_logging
from ekiden.cli.serving.supervisor import Report, WorkerArguments
from ekiden.errors import EkidenError, UsageError
from ekiden.transports.server.legacy.relay import UnixRelay

__all__ = ["main"]


def main() -> None:
    """Load, serve, and end with the parent."""
    task = msgspec.json.decode(sys.argv[1], type=WorkerArguments)
    set_up_logging(task.job.log_level)
    line = _own(task.line)
    threading.Thread(target=_end_with_parent, args=(line,), name="ekiden-parent", daemon=True).start()
    try:
        with _own(task.listener) as listener:
            server = load_server(task.job.spec)
            relay = UnixRelay(task.folder, task.name)
            serve(server, task.job, listener, lambda: _tell(line, Report(name=server.name)), relay)
    except EkidenError as error:
        _tell(line, Report(failure=str(error), usage=isinstance(error, UsageError)))
        sys.exit(2)


def _own(descriptor: int) -> socket.socket:
    """A socket that was handed down, and goes to nobody else: not to the server's own child processes."""
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def _tell(line: socket.socket, report: Report) -> None:
    with contextlib.suppress(OSError):  # The parent is gone; that is noticed elsewhere.
        line.sendall(msgspec.json.encode(report) + b"\n")


def _end_with_parent(line: socket.socket) -> None:
    """The parent says nothing on the line: whatever is read is its end."""
    line.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
