"""Ports for servers under test, dealt in turn to all processes of this machine.

A port that was only looked at may be taken by another process before its server listens. Here each port is
given to one caller, and comes up again only when all the others have been given away.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["free_port"]

_PORTS: Final = range(10_000, 32_000)
"""Below those that the kernel gives to clients."""
_TURN: Final = Path(tempfile.gettempdir()) / f"ekiden-ports-{os.getuid()}"
"""The port that was dealt last. Its lock is held for a moment."""


def free_port() -> int:
    """A port that nobody has, and that nobody else is given."""
    with _TURN.open("a+") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        turn.seek(0)
        dealt = int(turn.read() or _PORTS.start)
        for step in range(1, len(_PORTS)):
            port = _PORTS[(dealt - _PORTS.start + step) % len(_PORTS)]
            if _is_free(port):
                turn.truncate(0)
                turn.write(str(port))
                return port
    raise OSError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
