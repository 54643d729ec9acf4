"""The errands server, as the commands reach it: over HTTP and over stdio, in both eras."""

import re
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests import warm
from tests.cli.driving import FOLDER, Running, ekiden, running

ERRANDS = str(FOLDER / "servers" / "errands.py")


def over_stdio() -> str:
    """The command that starts them on stdio."""
    return shlex.join(warm.command(ERRANDS))


@contextmanager
def errands(folder: Path) -> Generator[tuple[str, Running], None, None]:
    """The server over HTTP: its address, and its process."""
    store = f"sqlite:///{folder}/tasks.db"
    with running(folder / "server.log", "run", ERRANDS, "--port", "0", "--store", store) as server:
        server.await_saying("is served at")
        found = re.search(r"is served at (\S+)", server.said)
        assert found is not None
        yield found[1], server


def detached(target: str, *words: str, **settings: str) -> str:
    """Begin a task, and leave it; its id, which is all that is printed."""
    done = ekiden("call", target, *words, "--detach", **settings)
    assert done.returncode == 0, done.stderr
    (task_id,) = done.stdout.splitlines()
    return task_id
