"""What a restart means for a client of 2025 that keeps its session: `docs/how-to/clients-of-2025.md`."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.ports import free_port
from tests.peers import running

HERE = Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("restart")]


@contextmanager
def served(port: int, log: Path, *options: str) -> Iterator[str]:
    """`ekiden run` at this port."""
    command = [sys.executable, "-m", "ekiden.cli", "run", str(HERE / "server.py"), "--port", str(port)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, *options], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        running.await_listening(process, port, log)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(running.STOP_SECONDS)


def called_before_and_after_a_restart(log: Path, *options: str) -> list[str]:
    """What mcp 1.30 gets for a call, and for another one in the same session after the server's restart."""
    environment = running.ROOT / ".peers" / "mcp1"
    running.require(environment)
    script, port = str(HERE / "restarted_client.py"), free_port()
    with served(port, log, *options) as url:
        client = subprocess.Popen(
            [str(environment / "bin" / "python"), script, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert client.stdout is not None
        before = client.stdout.readline()
    try:
        with served(port, log, *options):
            after, _ = client.communicate("\n", timeout=running.RUN_SECONDS)
    finally:
        client.kill()
        client.wait(running.STOP_SECONDS)
    return [before.strip(), after.strip()]


def test_a_client_that_keeps_its_session_does_not_begin_anew_after_a_restart(tmp_path: Path) -> None:
    assert called_before_and_after_a_restart(tmp_path / "log") == ["2", "Session terminated"]


def test_without_sessions_a_restart_is_not_noticed(tmp_path: Path) -> None:
    assert called_before_and_after_a_restart(tmp_path / "log", "--stateless-2025") == ["2", "4"]
