"""What is logged while a call runs, by whatever code it runs: a line of its story."""

import logging

from ekiden.stories.recorder import Recorder
from ekiden.stories.telling import current_story

__all__ = ["LogLines"]


class LogLines(logging.Handler):
    """Adds records of Python's `logging` to the story of the call that logs them.

    It is told only of what passes the levels that the process has set up.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        """Add a line, if it belongs to a call of this recorder."""
        story = current_story.get()
        if story is None or story.recorder is not self._recorder:
            return
        try:
            story.said("log", record.levelname.lower(), record.getMessage(), record.name)
        except Exception:
            self.handleError(record)
