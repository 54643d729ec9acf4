"""Metrics as Prometheus fetches them: over HTTP, from the real command."""

import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from scripts.ports import free_port
from tests.cli.driving import EKIDEN, SHOP, ekiden, environment, eventually, running


def two_ports() -> int:
    """The first of two ports, one after the other, that nobody has."""
    ports = [free_port() for _ in range(20)]
    return next(port for port in ports if port + 1 in ports)


def fetched(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
            return str(response.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return ""


def test_every_worker_serves_its_metrics_at_a_port_of_its_own(tmp_path: Path) -> None:
    port, metrics = free_port(), two_ports()
    options = ["--port", str(port), "--workers", "2", "--metrics-port", str(metrics)]
    with running(tmp_path / "log", "run", SHOP, *options) as server:
        server.await_saying("is served at")
        eventually(lambda: "python_info" in fetched(metrics + 1), "the second worker serves its metrics")
        called = ekiden("call", f"http://127.0.0.1:{port}/mcp", "confirm", "--answer", "sure=true")
        assert called.returncode == 0, called.stderr
        texts = [fetched(metrics), fetched(metrics + 1)]
    counted = [
        float(number)
        for text in texts
        for number in re.findall(r'^ekiden_call_rounds_sum\{.*"confirm".*\} (\S+)$', text, re.MULTILINE)
    ]
    assert sum(counted) == 2, texts


def test_there_is_no_endpoint_unless_it_is_asked_for(tmp_path: Path) -> None:
    report = "import sys, ekiden.cli.run; print([m for m in sys.modules if 'prometheus' in m])"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_port_that_is_taken_is_said_in_a_sentence(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path / "log", "run", SHOP, "--port", str(port)) as server:
        server.await_saying("is served at")
        done = subprocess.run(
            [*EKIDEN, "run", SHOP, "--port", "0", "--metrics-port", str(port)],
            capture_output=True,
            text=True,
            timeout=30,
            env=environment(),
        )
    assert (done.returncode, done.stderr) == (
        2,
        f"ekiden: metrics cannot be served at 127.0.0.1:{port}: Address already in use\n",
    )
