"""Several workers, each a process of its own on a port of its own."""

import asyncio
import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from scripts.ports import free_port
from tests.warm import WarmProcess, python

SCRIPT = Path(__file__).with_name("worker.py")

PATIENCE = 60.0
"""Seconds after which anything that has not happened is taken never to happen."""

LEASE_SECONDS = 1.0
"""After this long without a sign of life of its worker, a round may be taken over."""


class Worker:
    """One place in the cluster: its process may change, its port does not."""

    def __init__(self, port: int, log: Path, settings: dict[str, str], script: Path = SCRIPT) -> None:
        self.port = port
        self._script = script
        self.log = log
        self._usual = settings
        self._settings = settings
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def as_usual(self) -> bool:
        """Whether it runs, and nobody gave it other settings."""
        return self.runs and self._settings == self._usual

    def start(self, **settings: str) -> None:
        """Start a process, with other settings than usual where they are given. `ready` says when it is."""
        assert not self.runs
        self._settings = {**self._usual, **settings}
        with self.log.open("ab") as log:
            environment = {**os.environ, **self._settings}
            self._process = python(str(self._script), str(self.port), env=environment, stderr=log)

    def listens(self) -> bool:
        """Whether it accepts connections; a process that ended never will."""
        assert self.runs, f"the worker ended:\n{self.log.read_text()}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def await_listening(self) -> None:
        """Wait until it accepts connections."""
        deadline = time.monotonic() + PATIENCE
        while not self.listens():
            assert time.monotonic() < deadline, f"the worker does not listen:\n{self.log.read_text()}"
            time.sleep(0.01)

    async def ready(self) -> None:
        """Wait until it accepts connections, and let others go on meanwhile."""
        await asyncio.to_thread(self.await_listening)

    def kill(self) -> None:
        """End the process as a crash would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        assert self._process.wait(PATIENCE) == -signal.SIGKILL

    def stop(self) -> None:
        """End the process in order, if it has not ended before."""
        if self._process is None or not self.runs:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            if self.runs:
                self._process.kill()
                self._process.wait(PATIENCE)


class Cluster:
    """Three workers with their keys, their notes and maybe a store in common."""

    def __init__(self, folder: Path, keys: str, *, store: bool | str) -> None:
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.database = folder / "rounds.db"
        settings = {"EKIDEN_KEYS": keys, "NOTES": str(self.notes), "LEASE": str(LEASE_SECONDS)}
        if store:
            settings["STORE"] = store if isinstance(store, str) else f"sqlite:///{self.database}"
        self.workers = [Worker(free_port(), folder / f"log-{n}", settings) for n in range(3)]
        self.refusals = 0
        """How many states a test has had refused; each is logged."""

    def repair(self) -> None:
        """Have all workers run as usual."""
        broken = [worker for worker in self.workers if not worker.as_usual]
        for worker in broken:
            worker.stop()
            worker.start()
        for worker in broken:
            worker.await_listening()

    def __getitem__(self, turn: int) -> Worker:
        """The worker whose turn it is."""
        return self.workers[turn % len(self.workers)]

    def but(self, *unwanted: Worker | None) -> list[Worker]:
        """The workers that are none of these."""
        return [worker for worker in self.workers if worker not in unwanted]

    def steps(self, call: str) -> Counter[str]:
        """How often each step of a call was run, by whichever process."""
        return Counter(step for step, _ in self._noted("steps", call))

    def runners(self, call: str) -> dict[str, int]:
        """Which process ran which step of a call."""
        return {step: int(pid) for step, pid in self._noted("steps", call)}

    def served(self, call: str) -> list[int]:
        """Which process served which round of a call."""
        return [int(pid) for (pid,) in self._noted("rounds", call)]

    def _noted(self, file: str, call: str) -> list[list[str]]:
        lines = (self.notes / file).read_text().splitlines() if (self.notes / file).exists() else []
        words = [line.split() for line in lines]
        return [rest for noted, *rest in words if noted == call]

    def logged(self) -> list[int]:
        """How much each worker has logged."""
        return [worker.log.stat().st_size for worker in self.workers]

    def complaints(self, since: list[int]) -> str:
        """What the workers have logged since then, but for the advice that ten rounds are many, for the
        refusals that the test has brought about, and for event loops that were late: a busy machine does that
        to so short a lease."""
        news = [
            worker.log.read_bytes()[start:].decode()
            for worker, start in zip(self.workers, since, strict=True)
        ]
        lines = "".join(news).splitlines(keepends=True)
        expected = ("clients give up after 10 by default", "The event loop is blocked")
        lines = [line for line in lines if not any(words in line for words in expected)]
        refused = [line for line in lines if "WARNING:ekiden.server.sealing.refused_states:" in line]
        if len(refused) == self.refusals:
            lines = [line for line in lines if line not in refused]
        return "".join(lines)

    @contextmanager
    def locked_store(self) -> Generator[None]:
        """Meanwhile nobody else can write to the store."""
        self.database.touch(0o600)  # Else the workers complain that others could read it.
        with contextlib.closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")


@contextmanager
def cluster(folder: Path, keys: str, *, store: bool | str = False) -> Generator[Cluster]:
    """A cluster that is ready; in the end its processes are stopped. A store is a file, or a URL."""
    made = Cluster(folder, keys, store=store)
    with contextlib.ExitStack() as stack:
        for worker in made.workers:
            stack.callback(worker.stop)
        made.repair()
        yield made


class Gate:
    """Where held steps announce themselves, and wait for leave to go on."""

    def __init__(self, port: int, hold: Iterable[str]) -> None:
        self.port = port
        self.began: list[tuple[str, int]] = []
        """Steps and the processes that began them, in order."""
        self._held = {step: asyncio.Event() for step in hold}
        self._news = asyncio.Condition()

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one step."""
        try:
            step, pid = (await reader.readline()).decode().split()
            async with self._news:
                self.began.append((step, int(pid)))
                self._news.notify_all()
            if step in self._held:
                await self._held[step].wait()
            writer.write(b"go\n")
        finally:
            writer.close()

    async def beginning_of(self, step: str, times: int = 1) -> int:
        """Wait until a step has begun, for the first time or again; the process that runs it."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.runners(step)) >= times)
            return self.runners(step)[times - 1]

    def runners(self, step: str) -> list[int]:
        """The processes that began a step."""
        return [pid for began, pid in self.began if began == step]

    def open(self, step: str) -> None:
        """Let a step go on, now and whenever it comes again."""
        self._held[step].set()


@asynccontextmanager
async def gate(*hold: str) -> AsyncGenerator[Gate]:
    """A gate that holds the steps named, and lets all others through at once."""
    made = Gate(free_port(), hold)
    async with await asyncio.start_server(made.admit, "127.0.0.1", made.port):
        try:
            yield made
        finally:
            for step in hold:
                made.open(step)
