"""Whether the server is served right now: it starts, it serves, or its file cannot be loaded."""

import time
from typing import Literal

from ekiden.pages.trying.watching import Watched

__all__ = ["ServerStatus"]


class ServerStatus(Watched):
    """What `ekiden dev` tells the page about the server. Its only part is `status`."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        """The address of the endpoint."""
        self.state: Literal["starting", "serving", "failed"] = "starting"
        self.words = ""
        self.since = time.time()
        self.unseen = ""
        """Why the pages Calls and Tasks show nothing; empty if they do."""
        self.generation = 0
        """Grows whenever a new version of the server is served."""

    def serving(self) -> None:
        """A worker serves."""
        self.generation += 1
        self._set("serving", "")

    def changing(self, name: str) -> None:
        """A file has changed, and the worker is replaced."""
        self._set("starting", f"{name} changed")

    def failed(self, reason: str) -> None:
        """The file cannot be loaded, or its server cannot be started."""
        self._set("failed", reason)

    def _set(self, state: Literal["starting", "serving", "failed"], words: str) -> None:
        self.state, self.words, self.since = state, words, time.time()
        self.changed("status")
