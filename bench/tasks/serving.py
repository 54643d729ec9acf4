"""A server with tasks, workers that run them for it, and the lean client that creates them."""

import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench.cells import Setup
from bench.exchange import PATH
from bench.failure import BenchFailure
from bench.script import run_script
from bench.servers import CONTESTANTS, ROOT, Running, cores, running, stop

AT_ONCE: Final = 50
_START_SECONDS: Final = 30.0


@contextmanager
def serving(*options: str) -> Iterator[Running]:
    """ekiden's server on its core."""
    with running(Setup("ekiden", options), cores()[0]) as server, server.blamed():
        yield server


@contextmanager
def worker(store: str) -> Iterator[None]:
    """A process that runs the tasks of another that only serves."""
    command = [CONTESTANTS["ekiden"].interpreter(), "-m", "bench.apps.ekiden_app", "0", "--store", store]
    process = subprocess.Popen([*command, "--worker"], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
        if not ready or b"works" not in process.stdout.readline():
            raise BenchFailure("the worker did not start")
        yield
    finally:
        stop(process)


def client(server: Running, *arguments: str) -> Any:
    """What the lean client finds; its own text says what it can do."""
    url = f"http://127.0.0.1:{server.port}{PATH}"
    return run_script("ekiden", "bench.clients.task_client", url, *arguments)


def per_second(server: Running, tool: str, count: int, at_once: int = AT_ONCE) -> float:
    """How many tasks of a tool the server finishes in a second."""
    client(server, "run", tool, str(at_once), str(at_once))  # Warm.
    figure: float = client(server, "run", tool, str(count), str(at_once))["per_second"]
    return figure
