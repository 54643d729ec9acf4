"""The real command, as a script runs it and as a person at a terminal does. Every wait is bounded."""

import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.warm import WarmProcess, is_fit

from .display import Display

FOLDER = Path(__file__).parent
SHOP = str(FOLDER / "servers" / "shop.py")

PATIENCE = 60.0
"""Seconds after which anything that has not happened is taken never to happen."""

EKIDEN = [sys.executable, "-W", "error", "-m", "ekiden.cli"]

ESC, ENTER, DOWN, SPACE, CTRL_C = "\x1b", "\r", "\x1b[B", " ", "\x03"


def environment(**settings: str) -> dict[str, str]:
    """Ours, without what the tests are about."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EKIDEN_")}
    return {**kept, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1", **settings}


def start(
    arguments: Sequence[str],
    streams: tuple[int, int, int],
    *,
    command: Sequence[str] = EKIDEN,
    cwd: Path | None = None,
    terminal: bool = False,
    forks: bool = True,
    **settings: str,
) -> "subprocess.Popen[bytes] | WarmProcess":
    """A command on these descriptors. Its stdin becomes its controlling terminal if it is one.

    Without `forks` it starts Python for its own processes: needed where their numbers are looked at.
    """
    surroundings = environment(**settings)
    if command == EKIDEN and is_fit(surroundings):
        words = ["-m", "ekiden.cli", *arguments]
        return WarmProcess(words, streams, cwd=cwd, env=surroundings, terminal=terminal, forks=forks)
    return subprocess.Popen(
        [*command, *arguments],
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        cwd=cwd,
        env=surroundings,
        start_new_session=terminal,
        preexec_fn=_take_terminal if terminal else None,
    )


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def ekiden(
    *arguments: str, stdin: str = "", cwd: Path | None = None, **settings: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end. Its stdin is not a terminal."""
    given, said, complained = os.pipe(), os.pipe(), os.pipe()
    process = start(arguments, (given[0], said[1], complained[1]), cwd=cwd, **settings)
    try:
        _hand_over(given, stdin.encode())
        for theirs in (said[1], complained[1]):
            os.close(theirs)
        stdout, stderr = _read_to_end(said[0], complained[0])
        done = subprocess.CompletedProcess(arguments, process.wait(PATIENCE), stdout, stderr)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def _hand_over(pipe: tuple[int, int], text: bytes) -> None:
    """Write a text into a pipe, and close it. Whoever reads it need not have begun to."""
    read, write = pipe
    os.set_blocking(write, False)
    assert os.write(write, text) == len(text), "more than a pipe takes"
    os.close(write)
    os.close(read)


def _read_to_end(*descriptors: int) -> list[str]:
    """All that is written to pipes, of which the other ends are closed in time."""
    deadline = time.monotonic() + PATIENCE
    read: dict[int, bytes] = dict.fromkeys(descriptors, b"")
    open_ones = set(descriptors)
    try:
        while open_ones:
            ready, _, _ = select.select(open_ones, [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"it does not end: {list(read.values())}"
            for descriptor in ready:
                read[descriptor] += (chunk := os.read(descriptor, 65536))
                if not chunk:
                    open_ones.remove(descriptor)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return [io.StringIO(text.decode(), newline=None).read() for text in read.values()]


def eventually(condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never: {what if isinstance(what, str) else what()}"
        time.sleep(0.01)


class Running:
    """A command that goes on; what it writes to stderr is collected in a file."""

    def __init__(
        self, log: Path, *arguments: str, cwd: Path | None = None, forks: bool = True, **settings: str
    ) -> None:
        self._log = log
        with log.open("wb") as stderr, open(os.devnull, "r+b") as nothing:
            streams = (nothing.fileno(), nothing.fileno(), stderr.fileno())
            self.process = start(arguments, streams, cwd=cwd, forks=forks, **settings)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def await_saying(self, text: str, times: int = 1) -> None:
        def has_said() -> bool:
            assert self.process.poll() is None or text in self.said, f"it ended: {self.said}"
            return self.said.count(text) >= times

        eventually(has_said, lambda: f"{text!r} in {self.said!r}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal, unless it has ended; how it ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def stop_for_certain(self) -> None:
        try:
            self.stop()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(PATIENCE)


@contextmanager
def running(
    log: Path, *arguments: str, cwd: Path | None = None, forks: bool = True, **settings: str
) -> Generator[Running, None, None]:
    command = Running(log, *arguments, cwd=cwd, forks=forks, **settings)
    try:
        yield command
    finally:
        command.stop_for_certain()


class Person:
    """Somebody at a terminal: reads the screen, presses keys."""

    def __init__(
        self,
        *arguments: str,
        command: Sequence[str] = EKIDEN,
        cwd: Path | None = None,
        columns: int = 140,
        **settings: str,
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        # No cursor position requests: nobody here would answer them.
        terminal = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": str(columns), "LINES": "50"}
        self.process = start(
            arguments, (slave,) * 3, command=command, cwd=cwd, terminal=True, **terminal, **settings
        )
        os.close(slave)
        self.raw = b""
        """All that was sent to the terminal."""
        self._display = Display()
        self._before = ""

    @property
    def screen(self) -> str:
        """What is to be seen."""
        return self._display.text

    def reads(self, text: str) -> None:
        """Wait until something is to be seen that was not there when the last key was pressed."""
        deadline = time.monotonic() + PATIENCE
        while self.screen.count(text) <= self._before.count(text):
            assert self._more(deadline), f"{text!r} was never shown:\n{self.screen}"

    def presses(self, *keys: str) -> None:
        self._before = self.screen
        os.write(self._master, "".join(keys).encode())

    def types(self, text: str, *, instead_of: str = "") -> None:
        """Type, look at it, and press Enter."""
        self.presses("\x7f" * len(instead_of), text)
        self.reads(text)
        self.presses(ENTER)

    def ends(self) -> int:
        """Read to the end; the exit code. Nobody ever sees a traceback."""
        deadline = time.monotonic() + PATIENCE
        while self._more(deadline):
            assert time.monotonic() < deadline, f"it does not end: {self.screen!r}"
        code = self.process.wait(PATIENCE)
        assert "Traceback" not in self.screen, self.screen
        return code

    def _more(self, deadline: float) -> bool:
        """Read what there is; False at the end, or when patience has ended."""
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # How Linux says that the other side is closed.
            return False
        self.raw += chunk
        self._display.feed(chunk)
        return bool(chunk)

    def leave(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self._master)


@contextmanager
def person(
    *arguments: str,
    command: Sequence[str] = EKIDEN,
    cwd: Path | None = None,
    columns: int = 140,
    **settings: str,
) -> Generator[Person, None, None]:
    somebody = Person(*arguments, command=command, cwd=cwd, columns=columns, **settings)
    try:
        yield somebody
    finally:
        somebody.leave()
