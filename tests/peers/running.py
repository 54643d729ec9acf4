"""Running the server and the official clients, each in a process of its own."""

import contextlib
import runpy
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from scripts.ports import free_port
from tests import warm

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Process: TypeAlias = "subprocess.Popen[bytes] | warm.WarmProcess"

START_SECONDS = 60.0
"""Until the server listens; it takes half a second."""
RUN_SECONDS = 120.0
"""For all that a client does; it takes three."""
STOP_SECONDS = 60.0
"""For the server to end after it was told to."""


def stdio_server() -> list[str]:
    """How a client starts the server that it talks to on stdio."""
    return [*warm.command(str(HERE / "server.py")), "stdio"]


def client_command(client: str) -> list[str]:
    """How the script of a client is started; a missing environment is a failure, not a reason to skip."""
    if client == "python":
        require(ROOT / ".peers" / "mcp")
        return [str(ROOT / ".peers" / "mcp" / "bin" / "python"), str(HERE / "python_client.py")]
    require(ROOT / ".peers" / "node")
    node = runpy.run_path(str(ROOT / "scripts" / "npm.py"))["NODE"]
    return [str(node), str(HERE / "typescript_client.mjs")]


def require(environment: Path) -> None:
    """Fail, and say what makes the environment."""
    ready = environment / ".ready"
    if not ready.exists():
        target = ready.relative_to(ROOT)
        pytest.fail(f"{target} is missing: run `make {target}`", pytrace=False)


def run_client(client: str, target: list[str], plan: str, log: Path) -> str:
    """What the client prints. Its stderr, and that of a server which it starts, goes to `log`."""
    printed = log.with_suffix(".json")
    with log.open("ab") as stderr, printed.open("wb") as stdout:
        # Files, not pipes: a server that outlives a client must not keep us waiting for the end of a pipe.
        ended = subprocess.run(
            [*client_command(client), *target],
            input=plan.encode(),
            stdout=stdout,
            stderr=stderr,
            timeout=RUN_SECONDS,
            check=False,
        )
    if ended.returncode != 0:
        pytest.fail(f"the {client} client failed:\n{log.read_text()}", pytrace=False)
    return printed.read_text("utf-8")


@contextlib.contextmanager
def http_server(log: Path) -> Iterator[str]:
    """The URL of a running server. Whoever uses it tells it to end; it is stopped if that does not help."""
    port = free_port()
    with log.open("ab") as stderr:
        process = warm.python(str(HERE / "server.py"), "http", str(port), stderr=stderr)
    try:
        await_listening(process, port, log)
        yield f"http://127.0.0.1:{port}/mcp"
        process.wait(STOP_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(STOP_SECONDS)


def await_listening(process: Process, port: int, log: Path) -> None:
    """Return when the server accepts connections; fail if it ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), START_SECONDS):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            pytest.fail(f"the server ended with {process.returncode}:\n{log.read_text()}", pytrace=False)
    pytest.fail(f"the server does not listen after {START_SECONDS} s:\n{log.read_text()}", pytrace=False)
