"""What the user sees: results on stdout, everything else on stderr.

So a result can be piped while questions and progress stay at the terminal. All text from a server passes
`harmless` or `one_line` on its way to a terminal: here, and in `prompting`. Control characters and marks that
change the direction of writing could imitate other output or hide it; so could a line break in a name.
"""

import logging
import math
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from ekiden.wire.printable import UNSEEN, harmless, one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["HarmlessFormatter", "Screen", "harmless", "one_line", "say", "show_log"]

_TO_ESCAPE: Final = re.compile(f"{UNSEEN.pattern}|[\x85\u2028\u2029]")
_LONGEST_NOTE: Final = 10_000
"""Letters of what is not a result. Nobody reads more, and it would push all else off the screen."""


def _noted(text: str) -> str:
    """Text that is not a result: later lines are indented, so that none of them looks like one of ours."""
    cut = text if len(text) <= _LONGEST_NOTE else f"{text[:_LONGEST_NOTE]}..."
    return harmless(cut).replace("\n", "\n  ")


def say(message: str) -> None:
    """Print one line about this command itself, on stderr."""
    sys.stderr.write(f"ekiden: {_noted(message)}\n")
    sys.stderr.flush()


class _HarmlessLog(logging.StreamHandler[Any]):
    def format(self, record: logging.LogRecord) -> str:
        return _noted(super().format(record))


def show_log() -> None:
    """Show warnings of the library on stderr: some quote what a server has sent."""
    if not logging.root.handlers:
        logging.basicConfig(level=logging.WARNING, handlers=[_HarmlessLog()])


class HarmlessFormatter(logging.Formatter):
    """For the log of a server: what others sent cannot steer the terminal, nor look like another record."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # The name is that of `logging`.
        """The record without its trace: one line, and later lines indented."""
        return _noted(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """The trace, whole: its last line says most."""
        return harmless(super().formatException(ei)).replace("\n", "\n  ")


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
        self.err.print(_noted(text), style=style, soft_wrap=True)

    def quote(self, text: str) -> None:
        """What a server says, on stderr: all of it is indented, however it is wrapped."""
        from rich.padding import Padding
        from rich.text import Text

        self.err.print(Padding(Text(_noted(text).replace("\n  ", "\n")), (0, 0, 0, 2)))

    def text(self, text: str) -> None:
        """Print text of a result: unchanged for a program, without control characters at a terminal."""
        shown = harmless(text) if self.out.is_terminal else text
        self.out.file.write(shown if shown.endswith("\n") else shown + "\n")

    def json(self, value: Any) -> None:
        """Print a value as JSON, for programs; what a terminal would obey is escaped in it."""
        import msgspec

        self.text(_TO_ESCAPE.sub(_escaped, msgspec.json.format(msgspec.json.encode(value)).decode()))

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Update the progress bar, which only a terminal has."""
        if not self.err.is_terminal:
            return
        if self._progress is None:
            self._progress = self._new_bar()
        bar, task = self._progress
        about = one_line(message or "")
        part, whole = _drawn(done, total)
        bar.update(task, completed=part, total=whole, description=about, count=_count(done, total))

    def _new_bar(self) -> "tuple[Progress, TaskID]":
        from rich.progress import BarColumn, Progress, TextColumn

        count = TextColumn("{task.fields[count]}", markup=False)
        about = TextColumn("{task.description}", markup=False)
        bar = Progress(BarColumn(), count, about, console=self.err, transient=True)
        bar.start()
        return bar, bar.add_task("", total=None, count="")

    def clear(self) -> None:
        """Remove the progress bar, before a question or a result."""
        if self._progress is not None:
            self._progress[0].stop()
            self._progress = None


def _escaped(found: re.Match[str]) -> str:
    """A letter as JSON may spell it."""
    spelled = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{spelled[at : at + 4]}" for at in range(0, len(spelled), 4))


def _drawn(done: float, total: float | None) -> tuple[float, float | None]:
    """How much of the bar is filled, of 1; a bar without an end if the server's figures make no sense."""
    part = done / total if total else math.nan
    return (min(max(part, 0.0), 1.0), 1.0) if math.isfinite(part) else (0.0, None)


def _count(done: float, total: float | None) -> str:
    """How far it is: `1/4`, or `1` if nobody knows how much there is, or nothing before the first."""
    if total is not None:
        return f"{done:g}/{total:g}"
    return f"{done:g}" if done else ""
