import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ekiden.server.sealing.keys import new_key
from scripts.ports import free_port
from tests.inside.processes import ROOT, interpreter

SERVERS = Path(__file__).with_name("servers")
PATIENCE = 60.0
FAULT = re.compile(r"Traceback|never awaited|was never retrieved|Exception in callback")


class Served:
    """A server of another SDK, served by `ekiden run` with two workers."""

    def __init__(self, host: str, folder: Path) -> None:
        self.host, self.port = host, free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._notes, self._log = folder / "notes", folder / "log"
        self._notes.touch()
        settings = {"EKIDEN_KEYS": new_key(), "NOTES": str(self._notes), "PYTHONPATH": str(ROOT / "src")}
        command = [interpreter(host), "-m", "ekiden.cli", "run", str(SERVERS / f"{host}_server.py")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port), "--workers", "2"],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def runs(self, word: str) -> int:
        """How often a handler began, in whichever process."""
        return sum(line.startswith(f"{word} ") for line in self._notes.read_text().splitlines())

    def processes(self, word: str) -> set[str]:
        """The processes in which a handler began."""
        lines = self._notes.read_text().splitlines()
        return {line.split()[1] for line in lines if line.startswith(f"{word} ")}

    def await_serving(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while "is served at" not in self.log:
            assert self._process.poll() is None, f"it ended:\n{self.log}"
            assert time.monotonic() < deadline, f"it does not serve:\n{self.log}"
            time.sleep(0.02)
        # The first worker serves. What the kernel gives to the second waits until that one does, too.
        for _ in range(16):
            with urllib.request.urlopen(self.url.replace("/mcp", "/healthz"), timeout=PATIENCE) as response:
                assert response.status == 200

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait(PATIENCE)


@pytest.fixture(
    scope="module",
    params=[pytest.param(host, marks=pytest.mark.xdist_group(host)) for host in ("mcp", "fastmcp")],
)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of each SDK. A fault in its log is a fault, also if no client saw it."""
    server = Served(request.param, tmp_path_factory.mktemp(request.param))
    try:
        server.await_serving()
        yield server
    finally:
        server.stop()
    crashes = server.log.count("RuntimeError: a secret")
    assert len(FAULT.findall(server.log)) <= 2 * crashes, server.log
