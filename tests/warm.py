"""Processes that run a Python program, forked from one that has imported ekiden already.

To start Python and to import everything takes longer than most commands under test do. A fork behaves as a
process that was just started: it has its own arguments, environment, folder, streams and signals, and Python
ends as it always does. What is looked at before that, such as a locale, needs a real start: see `is_fit`.
"""

import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

__all__ = ["WarmProcess", "close", "is_fit", "python"]

_ROOT: Final = Path(__file__).parent.parent
_MOST: Final = 128 * 1024
"""Bytes of what a process is started with."""
_STATUS: Final = struct.Struct("i")
_FOR_THE_INTERPRETER: Final = ("PYTHON", "LANG", "LC_", "LD_", "COVERAGE_")
_AS_EVER: Final = {"PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}
_PRELOADED: Final = (
    "ekiden.integrations.mcp",
    "ekiden.server.serving.http",
    "ekiden.stores.postgres",
    "ekiden.stores.sqlite",
    "ekiden.transports.server.stdio",
    "mcp.server.mcpserver",
    "mcp_types",
    "questionary",
    "rich.progress",
    "rich.table",
    "uvloop",
)


def is_fit(environment: Mapping[str, str]) -> bool:
    """Whether a fork is like a process that is started with this environment."""
    return "COVERAGE_PROCESS_CONFIG" not in environment and (
        _for_the_interpreter(environment) == _for_the_interpreter({**os.environ, **_AS_EVER})
    )


def _for_the_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_FOR_THE_INTERPRETER)}


class _Forks:
    """The process that forks, and the way to it."""

    def __init__(self) -> None:
        self._way, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.warm", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_AS_EVER},
            )
        self._lock = threading.Lock()

    def start(self, job: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        message = json.dumps(job).encode()
        assert len(message) < _MOST, f"{len(message)} bytes are too much to start a process with"
        with self._lock:
            socket.send_fds(self._way, [message], descriptors)
            return int(self._way.recv(64))

    def close(self) -> None:
        self._way.close()
        self._process.wait(60)


_forks: list[_Forks] = []


def close() -> None:
    """End the process that forks. The next start makes another one."""
    while _forks:
        _forks.pop().close()


class WarmProcess:
    """`python WORDS` on these descriptors, with what is needed of `subprocess.Popen`.

    The words begin with a script, `-m MODULE` or `-c SOURCE`. With `terminal`, its stdin is a terminal, and
    becomes the one that controls it.
    """

    def __init__(
        self,
        words: Sequence[str],
        streams: tuple[int, int, int],
        *,
        cwd: Path | None,
        env: Mapping[str, str],
        terminal: bool = False,
    ) -> None:
        if not _forks:
            _forks.append(_Forks())
        job = {"words": words, "env": dict(env), "terminal": terminal}
        job["cwd"] = str(Path.cwd() if cwd is None else cwd)
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self.returncode: int | None = None
        self._ended, status = os.pipe()
        try:
            self.pid = _forks[0].start(job, [*streams, status])
        finally:
            os.close(status)

    def poll(self) -> int | None:
        """How it ended, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """How it ended. `TimeoutExpired` if it has not."""
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            with os.fdopen(self._ended, "rb") as ended:
                (status,) = _STATUS.unpack(ended.read())
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def python(
    *words: str,
    stdin: Any = subprocess.DEVNULL,
    stdout: Any = subprocess.DEVNULL,
    stderr: Any = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> "subprocess.Popen[bytes] | WarmProcess":
    """`python WORDS`, where warnings are errors. Streams are given as to `subprocess.Popen`."""
    environment = {**(os.environ if env is None else env), **_AS_EVER}
    streams: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    if not is_fit(environment):
        return subprocess.Popen([sys.executable, *words], cwd=cwd, env=environment, **streams)
    with contextlib.ExitStack() as stack:
        theirs, ours = _opened(streams, stack)
        process = WarmProcess(words, theirs, cwd=cwd, env=environment)
    process.stdin, process.stdout, process.stderr = ours
    return process


def _opened(
    streams: Mapping[str, Any], stack: contextlib.ExitStack
) -> tuple[tuple[int, int, int], list[IO[bytes] | None]]:
    """The descriptors that a process is given, which the stack closes, and our own ends of them."""
    theirs, ours = [], list[IO[bytes] | None]()
    for number, (name, wanted) in enumerate(streams.items()):
        end: IO[bytes] | None = None
        if wanted == subprocess.PIPE:
            read, write = os.pipe()
            kept, given = (write, read) if name == "stdin" else (read, write)
            end = os.fdopen(kept, "wb" if name == "stdin" else "rb")
            stack.callback(os.close, given)
        elif wanted == subprocess.DEVNULL:
            given = os.open(os.devnull, os.O_RDWR)
            stack.callback(os.close, given)
        else:
            given = number if wanted is None else wanted if isinstance(wanted, int) else wanted.fileno()
        theirs.append(given)
        ours.append(end)
    return (theirs[0], theirs[1], theirs[2]), ours


# In the process that forks


class _Forking:
    """Forks when it is asked to, and says how its forks ended."""

    def __init__(self, way: socket.socket) -> None:
        self._way = way
        self._statuses: dict[int, int] = {}
        """Where to write how a process ended."""
        self._wakes, wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        self._wakes_us = wakes

    def serve(self) -> dict[str, Any] | None:
        """Returns in every fork, with what it is to do; and in this process when the tests have ended."""
        while True:
            ready, _, _ = select.select([self._way, self._wakes], [], [])
            if self._wakes in ready:
                self._reap()
            if self._way in ready:
                message, descriptors, _, _ = socket.recv_fds(self._way, _MOST, 4)
                if not message:
                    self._end_all()
                    return None
                if (job := self._fork(message, descriptors)) is not None:
                    return job

    def _end_all(self) -> None:
        """End what is left, as when the tests were interrupted."""
        for process in self._statuses:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakes, 4096)
        for process in tuple(self._statuses):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                where = self._statuses.pop(process)
                with contextlib.suppress(BrokenPipeError):
                    os.write(where, _STATUS.pack(status))
                os.close(where)

    def _fork(self, message: bytes, descriptors: list[int]) -> dict[str, Any] | None:
        process = os.fork()
        if not process:
            job: dict[str, Any] = json.loads(message)
            self._leave(descriptors, job["terminal"])
            return job
        self._statuses[process] = descriptors.pop()
        for descriptor in descriptors:
            os.close(descriptor)
        self._way.send(str(process).encode())
        return None

    def _leave(self, descriptors: list[int], terminal: bool) -> None:
        """Be a process like any other, with these streams."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if terminal:
            os.setsid()
            fcntl.ioctl(descriptors[0], termios.TIOCSCTTY, 0)
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
        self._way.close()
        for descriptor in {*descriptors, *self._statuses.values(), self._wakes, self._wakes_us} - {0, 1, 2}:
            os.close(descriptor)


def _preload() -> None:
    """Import what commands and servers need. A command imports it when it runs."""
    import ekiden
    import ekiden.cli as cli

    for name in ekiden.__all__:
        getattr(ekiden, name)
    for name in _PRELOADED:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(cli.__path__, "ekiden.cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.freeze()  # A fork need not look at what it shares.


def _be(job: Mapping[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(job["env"])
    time.tzset()
    os.chdir(job["cwd"])
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(raw, "utf-8", errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _run(job["words"])


def _run(words: list[str]) -> None:
    """As `python WORDS` does."""
    if words[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *words[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who run the tests.
    _preload()
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with socket.socket(fileno=int(sys.argv[1])) as way:
        job = _Forking(way).serve()
    if job is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _be(job)


if __name__ == "__main__":
    _main()
