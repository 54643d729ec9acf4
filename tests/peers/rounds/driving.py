"""One run of a client against a server, with everything that can be known about it afterwards."""

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts.ports import free_port
from tests import warm
from tests.peers import running

from . import cases, recording
from .cases import Case, Json
from .clients import PeerClient
from .recording import Recording

HERE = Path(__file__).parent


class Observation(NamedTuple):
    client: PeerClient
    transport: str
    seen: Json
    """What the client saw."""
    wire: Recording
    steps: list[str]
    """What the server's steps noted."""
    log: str
    """What the server wrote to stderr; over stdio also what the client did."""

    @property
    def cases(self) -> dict[str, Case]:
        return cases.able(self.client.version, checks_answers=self.client.checks_answers)

    @property
    def unable(self) -> dict[str, Case]:
        return cases.unable(self.client.version)


def observe(client: PeerClient, transport: str, folder: Path) -> Observation:
    """Have a client go through all cases."""
    notes, log = folder / "notes", folder / "log"
    server = [str(HERE / "server.py"), transport, str(notes)]
    if transport == "stdio":
        tee = warm.command(str(HERE / "tee.py"), str(folder / "wire"))
        seen = run_client(client, ["stdio", *tee, *warm.command(*server)], log)
        wire = recording.read_tee(folder / "wire")
    else:
        with http_server(server, log) as port, recording.proxy(port) as between:
            seen = run_client(client, ["http", f"http://127.0.0.1:{between.port}/mcp"], folder / "client-log")
        wire = between.recording()
    return Observation(client, transport, seen, wire, notes.read_text().splitlines(), log.read_text())


def run_client(client: PeerClient, target: list[str], log: Path) -> Json:
    """What the client printed."""
    printed = log.with_name("printed")
    with log.open("ab") as stderr, printed.open("wb") as stdout:
        ended = subprocess.run(
            [*client.command(), *target],
            input=json.dumps(
                cases.plan(client.version, concurrent=client.concurrent, checks_answers=client.checks_answers)
            ).encode(),
            stdout=stdout,
            stderr=stderr,
            timeout=running.RUN_SECONDS,
            check=False,
        )
    if ended.returncode != 0:
        pytest.fail(f"the client {client.name} failed:\n{log.read_text()}", pytrace=False)
    seen: Json = json.loads(printed.read_text("utf-8"))
    return seen


@contextlib.contextmanager
def http_server(words: list[str], log: Path) -> Iterator[int]:
    """The port of a running server, which is interrupted in the end."""
    port = free_port()
    with log.open("ab") as stderr:
        process = warm.python(*words, str(port), stderr=stderr)
    try:
        running.await_listening(process, port, log)
        yield port
        process.send_signal(signal.SIGINT)
        process.wait(running.STOP_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(running.STOP_SECONDS)
