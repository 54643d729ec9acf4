"""Run a server on stdio, and keep what goes in and what comes out.

    python tee.py RECORD COMMAND ARGUMENT...

What the client sends is appended to `RECORD.in`, what the server sends to `RECORD.out`.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

STOP_SECONDS = 10.0


def relay(source: int, target: int, record: Path) -> None:
    """Pass bytes on as they come, until there are no more."""
    with record.open("ab", buffering=0) as kept:
        while chunk := os.read(source, 65536):
            kept.write(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(target, view) :]


def main(record: Path, command: list[str]) -> int:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        out = threading.Thread(
            target=relay, args=(server.stdout.fileno(), 1, record.with_suffix(".out")), daemon=True
        )
        out.start()
        try:
            relay(0, server.stdin.fileno(), record.with_suffix(".in"))
            server.stdin.close()
            server.wait(STOP_SECONDS)
            out.join(STOP_SECONDS)
        finally:
            server.kill()
    return server.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
