"""Starts several worker processes behind one port, and replaces those that end.

The parent listens but never accepts; the workers inherit its sockets. So no connection is refused while a
worker is replaced: it waits for the next one. A socket pair joins each worker to the parent: on it the worker
reports that it is ready, and when it closes the worker knows that the parent is gone.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import msgspec

from ekiden.cli.loading import split_spec
from ekiden.cli.serving.job import Job
from ekiden.cli.serving.refusing import refusing
from ekiden.cli.serving.reloading import FileWatch
from ekiden.cli.terminal.screen import say
from ekiden.errors import EkidenError, UsageError

__all__ = ["Report", "Supervisor", "WorkerArguments"]

_STEADY_SECONDS: Final = 10.0
"""After a worker that ran this long, the next one starts without a longer delay."""
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 5.0
"""Seconds before a restart: doubled each time, so that a worker which always fails does not use up a core."""
_LONGEST_FOLDER: Final = 80
"""Bytes; the path of a Unix socket in it may have 104 or 108."""
_AFTER_GRACE: Final = 3.0
"""Seconds beyond its grace after which a worker is killed."""


class WorkerArguments(msgspec.Struct):
    """The argument of a worker process, as JSON."""

    job: Job
    listener: int
    """The file descriptor of the listening socket."""
    line: int
    """The file descriptor of its end of the socket pair."""
    folder: str
    """The folder of the sockets by which workers reach each other."""
    name: str
    """The name of this worker in that folder."""


class Report(msgspec.Struct):
    """What a worker reports first: that it serves, or why it cannot."""

    name: str = ""
    failure: str | None = None
    usage: bool = False
    """Whether the failure is a `UsageError`."""
    renews: bool = False
    """Whether SIGHUP makes it read its keys again; else that signal ends it."""
    lines: list[str] = []
    """What the user must know of the server."""
    store: str | None = None
    """The name of its store, if it has one."""


class Worker:
    """One worker process, and our end of the socket pair."""

    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        self._process = process
        self._line = line
        self.pid = process.pid
        self.born = time.monotonic()
        self.renews = False
        """Whether it serves, and SIGHUP makes it read its keys again."""

    @classmethod
    async def start(cls, job: Job, listener: socket.socket, folder: str) -> "Worker":
        """Start a process, in a group of its own: Ctrl-C reaches it through the parent only."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        name = secrets.token_hex(4)  # New for every process: a session ends with the process that held it.
        told = WorkerArguments(job, listener.fileno(), theirs.fileno(), folder, name)
        task = msgspec.json.encode(told).decode()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "ekiden.cli.serving.worker_process", task),
                pass_fds=(listener.fileno(), theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
        return cls(process, ours)

    async def report(self) -> Report:
        """The worker's report, or that it ended without one."""
        said = b""
        while not said.endswith(b"\n"):
            chunk = await asyncio.get_running_loop().sock_recv(self._line, 65536)
            if not chunk:
                return Report(failure=f"the first worker {await self.ended()} before it served")
            said += chunk
        return msgspec.json.decode(said, type=Report)

    async def ended(self) -> str:
        """Wait until it has ended; how, in words."""
        code = await self._process.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    async def stop(self, grace: float) -> None:
        """Ask the process to end, and kill it if it does not."""
        # Running calls have the grace period, and after them the steps of running tasks.
        for number, seconds in ((signal.SIGTERM, 2 * grace + _AFTER_GRACE), (signal.SIGKILL, None)):
            self.send(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._process.wait()
                    break
        self._line.close()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self._process.returncode is None:
            # Not `Process.send_signal`: it polls for the exit code first, and takes it from asyncio.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@contextlib.contextmanager
def _socket_folder() -> Generator[str, None, None]:
    """A private folder for the workers' sockets, with a short path as those of sockets must be."""
    folder = tempfile.mkdtemp(prefix="ekiden-")
    if len(folder) > _LONGEST_FOLDER:
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="ekiden-", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Supervisor:
    """Keeps a number of workers running until a signal comes."""

    def __init__(
        self,
        job: Job,
        listeners: list[socket.socket],
        count: int,
        *,
        reload: bool,
        on_ready: Callable[[Report], None],
        on_change: Callable[[str], None] | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """`on_ready` is called with each report of a first worker.

        With `reload`, `on_change` is called with the name of a changed file, and `on_failure` with the reason
        why no worker could start.
        """
        self._job = job
        self._listeners = listeners
        self._count = count
        self._watch = FileWatch(split_spec(job.spec)[0]) if reload else None
        self._on_ready = on_ready
        self._on_change = on_change
        self._on_failure = on_failure
        self._folder = ""
        self._alive: set[Worker] = set()
        self._signals: list[signal.Signals] = []
        self._stop = asyncio.Event()
        self._first_serves = asyncio.Event()
        """Set when the first worker serves; the others start then."""

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM; then end as a process ends by that signal."""
        with asyncio.Runner() as runner:
            runner.run(self.supervise())
        self.end()

    def end(self) -> None:
        """After `supervise`: end as a process ends by the signal that came."""
        if self._signals[0] is signal.SIGINT:
            raise KeyboardInterrupt
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)

    async def supervise(self) -> None:
        """Serve until SIGINT or SIGTERM, in a loop that is running already."""
        with _socket_folder() as self._folder:
            await self._run()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number)
        while not self._stop.is_set():
            try:
                await self._until_stopped()
            except EkidenError as error:  # The first worker could not start, so no other can.
                if self._watch is None:
                    raise
                say(f"{error}; waiting for a change")
                if self._on_failure is not None:
                    self._on_failure(str(error))
                async with refusing(self._listeners, str(error)):
                    await self._signal_or_change()

    def _signalled(self, number: signal.Signals) -> None:
        """Stop all workers; at the second signal, at once."""
        self._signals.append(number)
        self._stop.set()
        if len(self._signals) > 1:
            for worker in self._alive:
                worker.send(signal.SIGKILL)

    def _renew_keys(self) -> None:
        """Have all workers read their keys again. One that starts right now reads them anyway."""
        for worker in self._alive:
            if worker.renews:
                worker.send(signal.SIGHUP)

    async def _until_stopped(self) -> None:
        """Keep all workers until a signal, or with `reload` until a file changes."""
        self._first_serves.clear()
        if self._watch is not None:
            self._watch.look()
        keeping = [asyncio.ensure_future(self._keep_running(number)) for number in range(self._count)]
        news = asyncio.ensure_future(self._signal_or_change())
        await asyncio.wait({news, *keeping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (news, *keeping):
            task.cancel()
        ends = await asyncio.gather(*keeping, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _signal_or_change(self) -> None:
        """Wait for a signal or a change."""
        waits: list[asyncio.Task[Any]] = [asyncio.ensure_future(self._stop.wait())]
        if self._watch is not None:
            waits.append(asyncio.ensure_future(self._change(self._watch)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _change(self, watch: FileWatch) -> None:
        name = (await watch.changed()).name
        say(f"{name} changed; the workers are replaced")
        if self._on_change is not None:
            self._on_change(name)

    async def _keep_running(self, number: int) -> None:
        """Keep one worker running: start another when it ends."""
        if number > 0:
            await self._first_serves.wait()
        listener = self._listeners[number % len(self._listeners)]
        deaths = 0
        while True:
            worker = await self._started(listener, self._job_of(number))
            try:
                end = await self._until_ended(worker)
            finally:
                await worker.stop(self._job.grace)
                self._alive.discard(worker)
            if self._stop.is_set():
                return  # The signal may have reached the worker before it had a group of its own.
            deaths = 1 if time.monotonic() - worker.born > _STEADY_SECONDS else deaths + 1
            delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (deaths - 1))
            say(f"worker {worker.pid} {end}; another one starts in {delay:g} s")
            await asyncio.sleep(delay)

    def _job_of(self, number: int) -> Job:
        """The job of one worker: each has its own port for metrics."""
        port = self._job.metrics_port
        return self._job if port is None else msgspec.structs.replace(self._job, metrics_port=port + number)

    async def _started(self, listener: socket.socket, job: Job) -> Worker:
        """A new worker. If this is cancelled meanwhile, the worker is stopped once it has started."""
        starting = asyncio.ensure_future(Worker.start(job, listener, self._folder))
        try:
            worker = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await (await starting).stop(self._job.grace)
            raise
        self._alive.add(worker)
        return worker

    async def _until_ended(self, worker: Worker) -> str:
        """Wait until a worker has ended; how, in words."""
        report = await worker.report()
        worker.renews = report.renews
        if report.renews:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._renew_keys)
        if report.failure is None and not self._first_serves.is_set():
            self._first_serves.set()
            self._on_ready(report)
        elif report.failure is not None and not self._first_serves.is_set():
            raise (UsageError if report.usage else EkidenError)(report.failure)
        return await worker.ended()
