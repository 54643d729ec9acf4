"""A folder of sockets that is its owner's alone, and is gone when the last of them is.

Its name can be guessed, and where it lies others may write: so whoever uses it looks each time whether
it really is a folder, and its own.
"""

import os
import stat
from pathlib import Path

from ekiden.errors import NotPrivate

__all__ = ["PrivateFolder"]


class PrivateFolder:
    """A folder with mode 0700, made when it is needed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Make it, if it is not there; `NotPrivate` if what is there cannot be trusted."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        found = self.look()
        if stat.S_IMODE(found.st_mode) != 0o700:
            self.path.chmod(0o700)  # It is ours: an earlier version left it open to others.

    def look(self) -> os.stat_result:
        """What the file system knows of it."""
        found = self.path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise NotPrivate(f"{self.path} is not a folder of this user")
        return found

    def names(self) -> tuple[str, ...]:
        """What is in it."""
        return tuple(entry.name for entry in self.path.iterdir())

    def remove(self) -> None:
        """Remove it, unless somebody still has something in it."""
        try:
            self.look()
            self.path.rmdir()
        except OSError:
            pass
