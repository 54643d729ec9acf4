"""The warm process: it has imported ekiden, and forks when it is asked to.

    python -m tests.warm.forking WAY DOOR

`WAY` is a socket to the process that started it; `DOOR` is one where programs come of whom it knows nothing.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import itertools
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time
import types
from collections.abc import Mapping
from typing import Any, Final, NoReturn

_MOST: Final = 128 * 1024
"""Bytes of what a process is started with."""
_MOST_DESCRIPTORS: Final = 64
_VISIT_SECONDS: Final = 60.0
"""For a program at the door to say what it wants: it does so at once."""
_STATUS: Final = struct.Struct("i")
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
_imported_before: Final = set[str]()


class _Forking:
    """Forks when it is asked to, and says how its forks ended."""

    def __init__(self, way: socket.socket, door: socket.socket) -> None:
        self._way = way
        self._door = door
        self._statuses: dict[int, int] = {}
        """Where to write how a process ended."""
        self._visitors: dict[socket.socket, int] = {}
        """The programs that forks stand for."""
        self._wakes, wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        self._wakes_us = wakes

    def serve(self) -> dict[str, Any] | None:
        """Returns in every fork, with what it is to do; and in this process when the tests have ended."""
        while True:
            ready, _, _ = select.select([self._way, self._door, self._wakes, *self._visitors], [], [])
            if self._wakes in ready:
                self._reap()
            for visitor in self._visitors.keys() & set(ready):
                self._kill_for(visitor)
            if self._door in ready and (job := self._let_in()) is not None:
                return job
            if self._way in ready:
                message, descriptors, _, _ = socket.recv_fds(self._way, _MOST, _MOST_DESCRIPTORS)
                if not message:
                    self._end_all()
                    return None
                if (job := self._fork(message, descriptors, self._way)) is not None:
                    return job

    def _let_in(self) -> dict[str, Any] | None:
        """Fork for a program that came to the door."""
        visitor, _ = self._door.accept()
        visitor.settimeout(_VISIT_SECONDS)
        message, descriptors, _, _ = socket.recv_fds(visitor, _MOST, _MOST_DESCRIPTORS)
        if not message:
            visitor.close()
            return None
        return self._fork(message, descriptors, visitor)

    def _kill_for(self, visitor: socket.socket) -> None:
        """A program left before its fork ended: it was killed, and could not pass that on."""
        with visitor:
            os.kill(self._visitors.pop(visitor), signal.SIGKILL)

    def _end_all(self) -> None:
        """End what is left, as when the tests were interrupted."""
        for process in self._statuses:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakes, 4096)
        visitors = {process: visitor for visitor, process in self._visitors.items()}
        for process in tuple(self._statuses):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                where = self._statuses.pop(process)
                with contextlib.suppress(BrokenPipeError):
                    os.write(where, _STATUS.pack(status))
                os.close(where)
                if process in visitors:
                    del self._visitors[visitors[process]]
                    visitors[process].close()

    def _fork(self, message: bytes, descriptors: list[int], asks: socket.socket) -> dict[str, Any] | None:
        process = os.fork()
        if not process:
            job: dict[str, Any] = json.loads(message)
            asks.close()
            self._leave(descriptors, job.get("descriptors", [0, 1, 2]), job["terminal"])
            return job
        self._statuses[process] = descriptors.pop()
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(BrokenPipeError):
            asks.send(str(process).encode())
        if asks is not self._way:
            self._visitors[asks] = process
        return None

    def _leave(self, descriptors: list[int], numbers: list[int], terminal: bool) -> None:
        """Be a process like any other, which has these descriptors, and gives them these numbers."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if terminal:
            os.setsid()
            fcntl.ioctl(descriptors[0], termios.TIOCSCTTY, 0)
        for ours in (self._way, self._door, *self._visitors):
            ours.close()
        free = max(*numbers, *descriptors) + 1
        kept = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, free) for descriptor in descriptors[: len(numbers)]]
        for descriptor in {*descriptors, *self._statuses.values(), self._wakes, self._wakes_us}:
            os.close(descriptor)
        for number, descriptor in zip(numbers, kept, strict=True):
            os.dup2(descriptor, number)
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
    _imported_before.update(sys.modules)
    gc.freeze()  # A fork need not look at what it shares.


def _be(job: Mapping[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(job["env"])
    sys.executable = job["executable"]
    time.tzset()
    os.chdir(job["cwd"])
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(raw, "utf-8", errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _run(job["words"])


def _code_of(job: Mapping[str, Any]) -> int:
    """With which code a program ends. What it raises otherwise is told by Python as ever."""
    try:
        _be(job)
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        return error.code or 0
    return 0


def _end(code: int) -> NoReturn:
    """End as Python does, but leave alone what was imported before the fork.

    Python would take all of it apart, and so copy most of the memory: ten times the work of the fork itself.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for name in _imported_since():
        del sys.modules[name]
    if vars(main := sys.modules["__main__"]) is not globals():
        vars(main).clear()
    gc.collect()  # What is left open now says so.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError):
            stream.flush()
    os._exit(code & 0xFF)


def _imported_since() -> list[str]:
    """The modules that were imported after the fork: the last ones.

    Whoever looks at a string counts a reference in it, and so copies its page: to look at the names of all
    modules takes as long as the fork.
    """
    return list(itertools.takewhile(lambda name: name not in _imported_before, reversed(sys.modules)))


def _run(words: list[str]) -> None:
    """As `python WORDS` does."""
    if words[0] == "-P":
        words = words[1:]
        assert words[0] == "-m", words
        sys.path[0] = os.devnull  # There is nothing to import.
    elif words[0] == "-m":
        sys.path[0] = os.getcwd()
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.modules.pop(words[1], None)  # Nobody has imported it yet.
        _imported_before.discard(words[1])
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
    with socket.socket(fileno=int(sys.argv[1])) as way, socket.socket(fileno=int(sys.argv[2])) as door:
        way.send(b"ready")
        job = _Forking(way, door).serve()
    if job is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _end(_code_of(job))


if __name__ == "__main__":
    _main()
