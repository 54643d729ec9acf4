"""Processes that run a Python program, forked from one that has imported ekiden already.

To start Python and to import everything takes longer than most commands under test do. A fork behaves as a
process that was just started: it has its own arguments, environment, folder, streams and signals, and Python
ends as it always does. What is looked at before that, such as a locale, needs a real start: see `is_fit`.

`forking` is what the warm process does; `command` is what programs start in place of Python.
"""

import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

__all__ = ["WarmProcess", "close", "command", "is_fit", "python"]

_ROOT: Final = Path(__file__).parent.parent.parent
_MOST: Final = 128 * 1024
"""Bytes of what a process is started with."""
_READY_SECONDS: Final = 120.0
"""For the process that forks to import everything, on a machine that is busy, too."""
_STATUS: Final = struct.Struct("i")
_FOR_THE_INTERPRETER: Final = ("PYTHON", "LANG", "LC_", "LD_", "COVERAGE_")
_AS_EVER: Final = {"PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}


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
        self._folder = tempfile.mkdtemp(prefix="ekiden-warm-")
        self.python = self._stand_in()
        """What is started in place of Python by programs that cannot use `start`."""
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(f"{self._folder}/door")
            door.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm.forking", str(theirs.fileno()), str(door.fileno())],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), door.fileno()],
                env={**os.environ, **_AS_EVER},
            )
        # Who starts a server waits for it for some seconds only, and to import everything takes some.
        self._way.settimeout(_READY_SECONDS)
        assert self._way.recv(64) == b"ready", "the process that forks has ended"
        self._way.settimeout(None)
        self._lock = threading.Lock()

    def _stand_in(self) -> str:
        file = Path(self._folder, "python")
        words = [sys.executable, "-I", "-S", str(_ROOT / "tests" / "warm" / "command.py"), self._folder]
        file.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        file.chmod(0o700)
        return str(file)

    def start(self, job: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        message = json.dumps(job).encode()
        assert len(message) < _MOST, f"{len(message)} bytes are too much to start a process with"
        with self._lock:
            socket.send_fds(self._way, [message], descriptors)
            return int(self._way.recv(64))

    def close(self) -> None:
        self._way.close()
        self._process.wait(60)
        shutil.rmtree(self._folder)


_forks: list[_Forks] = []


def _our_forks() -> _Forks:
    if not _forks:
        _forks.append(_Forks())
    return _forks[0]


def close() -> None:
    """End the process that forks. The next start makes another one."""
    while _forks:
        _forks.pop().close()


class WarmProcess:
    """`python WORDS` on these descriptors, with what is needed of `subprocess.Popen`.

    The words begin with a script, `-m MODULE` or `-c SOURCE`. With `terminal`, its stdin is a terminal, and
    becomes the one that controls it. With `forks`, its `sys.executable` is one that forks, too.
    """

    def __init__(
        self,
        words: Sequence[str],
        streams: tuple[int, int, int],
        *,
        cwd: Path | None,
        env: Mapping[str, str],
        terminal: bool = False,
        forks: bool = False,
    ) -> None:
        executable = _our_forks().python if forks else sys.executable
        job = {"words": words, "env": dict(env), "terminal": terminal, "executable": executable}
        job["cwd"] = str(Path.cwd() if cwd is None else cwd)
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self.returncode: int | None = None
        self._ended, status = os.pipe()
        try:
            self.pid = _our_forks().start(job, [*streams, status])
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


def command(*words: str) -> list[str]:
    """What others start in place of `python WORDS`, where warnings are errors."""
    if not is_fit({**os.environ, **_AS_EVER}):
        return [sys.executable, "-W", "error", *words]
    return [_our_forks().python, *words]


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
