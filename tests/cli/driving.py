"""The real command, as a script runs it and as a person at a terminal does. Every wait is bounded."""

import fcntl
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

from .display import Display

FOLDER = Path(__file__).parent
SHOP = str(FOLDER / "servers" / "shop.py")

PATIENCE = 30.0
"""Seconds after which anything that has not happened is taken never to happen."""

EKIDEN = [sys.executable, "-W", "error", "-m", "ekiden.cli"]

ESC, ENTER, DOWN, SPACE, CTRL_C = "\x1b", "\r", "\x1b[B", " ", "\x03"


def environment(**settings: str) -> dict[str, str]:
    """Ours, without what the tests are about."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EKIDEN_")}
    return {**kept, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1", **settings}


def ekiden(
    *arguments: str, stdin: str = "", cwd: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Its stdin is no terminal."""
    done = subprocess.run(
        [*EKIDEN, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=cwd,
        env=environment(**settings),
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def eventually(condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never: {what if isinstance(what, str) else what()}"
        time.sleep(0.01)


class Running:
    """A command that goes on; what it writes to stderr is collected in a file."""

    def __init__(self, log: Path, *arguments: str, cwd: Path | None = None, **settings: str) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*EKIDEN, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=cwd,
                env=environment(**settings),
            )

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
    log: Path, *arguments: str, cwd: Path | None = None, **settings: str
) -> Generator[Running, None, None]:
    command = Running(log, *arguments, cwd=cwd, **settings)
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
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=environment(**terminal, **settings),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
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
