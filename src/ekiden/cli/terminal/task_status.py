"""Shows the state of a task while a call waits for it."""

from typing import TYPE_CHECKING

from ekiden.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from ekiden.client.tasks.handle import TaskSnapshot

__all__ = ["TaskScreen"]


class TaskScreen:
    """Shows each new state of a task: in the progress bar, or in lines with `--verbose`."""

    def __init__(self, screen: Screen, *, verbose: bool) -> None:
        self._screen = screen
        self._verbose = verbose
        self._last = ""

    def show(self, snapshot: "TaskSnapshot") -> None:
        """Show a state, unless it was the last one shown."""
        text = snapshot.status.replace("_", " ")
        if snapshot.status_message:
            text += f": {snapshot.status_message}"
        if text == self._last:
            return
        self._last = text
        if self._verbose:
            self._screen.clear()
            self._screen.note(f"task {text}", style="dim")
        elif not snapshot.ended:
            self._screen.progress(0, None, text)
