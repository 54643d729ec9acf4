"""A folder for sockets that only its owner can use, and that is removed with the last of them.

Its name can be guessed, and other users may be able to write where it lies. So each use checks that it is a
folder, and that it belongs to this user.
"""

import os
import stat
from pathlib import Path

from ekiden.signals import NotPrivate

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
        """Its `lstat`; `NotPrivate` if it cannot be trusted."""
        found = self.path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise NotPrivate(f"{self.path} is not a folder of this user")
        return found

    def names(self) -> tuple[str, ...]:
        """The sockets in it. What else a person may have put there is left alone."""
        return tuple(entry.name for entry in self.path.iterdir() if _is_socket(entry))

    def remove(self) -> None:
        """Remove it if it is empty."""
        try:
            self.look()
            self.path.rmdir()
        except OSError:
            pass


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:  # It was removed meanwhile.
        return False
