"""Shows the state of a task while somebody waits for it."""

import re
from typing import TYPE_CHECKING, Final

from ekiden.cli.terminal.screen import Screen, one_line

if TYPE_CHECKING:
    from ekiden.client.tasks.handle import TaskSnapshot

__all__ = ["TaskScreen", "in_words"]

_NUMBER: Final = r"\d+(?:\.\d+)?"
_STEPS: Final = re.compile(
    rf"(?:(?P<about>.*) \()?(?P<done>{_NUMBER})/(?P<total>{_NUMBER})(?(about)\))", re.DOTALL
)
"""On the wire a task has a message, and no progress; ekiden servers write "reserved (1/2)", or "1/2"."""


def in_words(snapshot: "TaskSnapshot", *, message: bool = True) -> str:
    """The state of a task, with its message if it has one."""
    text = snapshot.status.replace("_", " ")
    if snapshot.status == "completed" and (snapshot.result or {}).get("isError") is True:
        text += ", but the tool failed"
    return f"{text}: {snapshot.status_message}" if message and snapshot.status_message else text


class TaskScreen:
    """Shows each new state of a task: in the progress bar, or in lines with `--verbose`."""

    def __init__(self, screen: Screen, *, verbose: bool) -> None:
        self._screen = screen
        self._verbose = verbose
        self._last = ""
        self._done = 0.0
        self._total: float | None = None

    def show(self, snapshot: "TaskSnapshot") -> None:
        """Show a state, unless it was the last one shown."""
        text = in_words(snapshot)
        if text == self._last:
            return
        self._last = text
        if self._verbose:
            self._screen.clear()
            self._screen.note(one_line(f"task {text}"), style="dim")
        elif not snapshot.ended:
            self._show_bar(snapshot)

    def _show_bar(self, snapshot: "TaskSnapshot") -> None:
        """A message without steps leaves the bar where it is."""
        message = snapshot.status_message or ""
        if (steps := _STEPS.fullmatch(message)) is not None:
            self._done, self._total = float(steps["done"]), float(steps["total"])
            message = steps["about"] or ""
        status = snapshot.status.replace("_", " ")
        self._screen.progress(self._done, self._total, f"{status}: {message}" if message else status)
