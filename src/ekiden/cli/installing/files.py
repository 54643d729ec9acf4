"""A file of somebody else's: read whole, changed whole or not at all, with what it was kept beside it."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import msgspec

from ekiden.errors import UsageError

__all__ = ["OwnFile", "read_file"]

_MOST_BYTES = 64 * 1024 * 1024
"""The settings of Claude Code hold its history, and grow large. What is larger is something else."""


class OwnFile(msgspec.Struct, frozen=True):
    """A file as it was when it was read."""

    path: Path
    """The file itself, where the name was a link."""
    text: str | None
    """None if there is none yet."""
    stamp: tuple[int, int] | None

    @property
    def backup(self) -> Path:
        """Where what it was is kept."""
        return self.path.with_name(f"{self.path.name}.before-ekiden")

    def replace(self, text: str, *, private: bool) -> None:
        """Put this text in its place at once. `private`: a new file is for its owner alone.

        It is refused if the file has changed since it was read: its program may just have saved it.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._beside() as new:
                with new.open("wb") as file:
                    file.write(text.encode())
                    file.flush()
                    os.fsync(file.fileno())
                self._take_mode(new, private)
                if _stamp(self.path) != self.stamp:
                    raise UsageError(f"{self.path} has just been changed by another program: try again")
                if self.text is not None:
                    with self._beside() as old:
                        shutil.copy2(self.path, old)
                        old.replace(self.backup)
                new.replace(self.path)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror or error}") from None

    @contextlib.contextmanager
    def _beside(self) -> Generator[Path, None, None]:
        """A new file that only we can read, to be moved into its place: what lies there may be a link."""
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        os.close(handle)
        try:
            yield Path(name)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name)  # noqa: PTH108

    def _take_mode(self, new: Path, private: bool) -> None:
        if self.text is not None:
            shutil.copymode(self.path, new)
        elif not private:
            mask = os.umask(0)
            os.umask(mask)
            new.chmod(0o666 & ~mask)


def read_file(path: Path) -> OwnFile:
    """A file of settings, or what stands for one that is not there yet."""
    path = path.resolve()
    stamp = _stamp(path)
    if stamp is None:
        return OwnFile(path, None, None)
    try:
        if stamp[1] > _MOST_BYTES:
            raise UsageError(f"{path} has more than {_MOST_BYTES} bytes: it is not a file of settings")
        return OwnFile(path, path.read_bytes().decode(), stamp)
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8: nothing was changed") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
