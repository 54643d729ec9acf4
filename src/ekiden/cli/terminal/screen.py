"""What the user sees: results on stdout, everything else on stderr.

So a result can be piped while questions and progress stay at the terminal. Text from a server is
shown without control characters, with which it could imitate other output.
"""

import re
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Screen", "harmless", "say"]

_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""C0 and C1 except tab and newline, and the marks that change the direction of writing."""


def harmless(text: object) -> str:
    """Text from a server without control characters."""
    return _CONTROLS.sub("", str(text).replace("\r\n", "\n"))


def say(message: str) -> None:
    """Print one line about this command itself, on stderr."""
    sys.stderr.write(f"ekiden: {harmless(message)}\n")
    sys.stderr.flush()


class Screen:
    """Standard output and standard error of one command."""

    def __init__(self) -> None:
        from rich.console import Console

        # A program that reads a table needs its lines whole.
        width = None if sys.stdout.isatty() else 1000
        self.out: Console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
        self.err: Console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self._progress: tuple[Progress, TaskID] | None = None

    def note(self, text: str = "", style: str | None = None) -> None:
        """A line on stderr."""
        self.err.print(harmless(text), style=style, soft_wrap=True)

    def text(self, text: str) -> None:
        """Print text of a result: unchanged for a program, without control characters at a terminal."""
        shown = harmless(text) if self.out.is_terminal else text
        self.out.file.write(shown if shown.endswith("\n") else shown + "\n")

    def json(self, value: Any) -> None:
        """Print a value as JSON, for programs."""
        import msgspec

        self.text(msgspec.json.format(msgspec.json.encode(value)).decode())

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Update the progress bar, which only a terminal has."""
        if not self.err.is_terminal:
            return
        if self._progress is None:
            self._progress = self._new_bar()
        bar, task = self._progress
        bar.update(task, completed=done, total=total, description=harmless(message or "").replace("\n", " "))

    def _new_bar(self) -> "tuple[Progress, TaskID]":
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        about = TextColumn("{task.description}", markup=False)
        bar = Progress(BarColumn(), MofNCompleteColumn(), about, console=self.err, transient=True)
        bar.start()
        return bar, bar.add_task("", total=None)

    def clear(self) -> None:
        """Remove the progress bar, before a question or a result."""
        if self._progress is not None:
            self._progress[0].stop()
            self._progress = None
