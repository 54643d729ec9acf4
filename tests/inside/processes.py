"""Hosts in processes of their own, which share keys, a store and their notes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ekiden.server.sealing.keys import new_key
from scripts.ports import free_port
from tests.peers.running import require
from tests.warm import WarmProcess, python

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("host_server.py")
HOSTS = ("ekiden", "mcp", "fastmcp")

PATIENCE = 60.0
"""Seconds after which anything that has not happened is taken never to happen."""


def interpreter(host: str) -> str:
    """The Python that has both the host and what ekiden needs."""
    if host != "fastmcp":
        return sys.executable
    require(ROOT / ".peers" / "in-fastmcp")
    return str(ROOT / ".peers" / "in-fastmcp" / "bin" / "python")


class HostProcess:
    """One process of a host: it may be killed and started again, on the same port."""

    def __init__(self, host: str, log: Path, settings: dict[str, str]) -> None:
        self.host, self.port, self.log = host, free_port(), log
        self._settings = settings
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    def start(self) -> None:
        words, environment = (str(SCRIPT), self.host, str(self.port)), {**os.environ, **self._settings}
        with self.log.open("ab") as log:
            if (their_python := interpreter(self.host)) == sys.executable:
                self._process = python(*words, env=environment, stdout=log, stderr=log)
            else:
                environment["PYTHONPATH"] = str(ROOT / "src")
                self._process = subprocess.Popen(
                    [their_python, *words], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )

    def await_listening(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"the host ended:\n{self.log.read_text()}"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        raise AssertionError(f"the host does not listen:\n{self.log.read_text()}")

    def kill(self) -> None:
        """End the process as a crash would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        assert self._process.wait(PATIENCE) == -signal.SIGKILL

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait(PATIENCE)


class HostProcesses:
    """Several processes of one host."""

    def __init__(self, host: str, folder: Path, count: int) -> None:
        self.host = host
        self.notes = folder / "notes"
        self.notes.mkdir()
        settings = {
            "EKIDEN_KEYS": new_key(),
            "NOTES": str(self.notes),
            "STORE": f"sqlite:///{folder / 'shop.db'}",
        }
        self.all = [HostProcess(host, folder / f"log-{number}", settings) for number in range(count)]

    def __getitem__(self, turn: int) -> HostProcess:
        return self.all[turn % len(self.all)]

    def effects(self, order: str) -> Counter[str]:
        """How often each effect of an order happened, in whichever process."""
        noted = self.notes / order
        lines = noted.read_text().splitlines() if noted.exists() else []
        return Counter(line.split()[0] for line in lines)

    def logs(self) -> str:
        return "\n".join(process.log.read_text() for process in self.all)


@contextmanager
def running(host: str, folder: Path, count: int = 1) -> Iterator[HostProcesses]:
    """Processes of a host that listen."""
    processes = HostProcesses(host, folder, count)
    try:
        for process in processes.all:
            process.start()
        for process in processes.all:
            process.await_listening()
        yield processes
    finally:
        for process in processes.all:
            process.stop()
