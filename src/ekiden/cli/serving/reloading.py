"""Which Python files have changed, by looking at their times: a few hundred `stat` calls need no library."""

import asyncio
import os
from pathlib import Path
from typing import Final

__all__ = ["FileWatch"]

_POLL_SECONDS: Final = 0.3
_MOST_FOLDERS: Final = 500
"""Folders that are looked at: a home directory may have too many."""
_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})


class FileWatch:
    """Watches the Python files in a file's folder and below it."""

    def __init__(self, file: Path) -> None:
        self._folder = file.resolve().parent
        self._seen: dict[Path, int] = {}

    def look(self) -> None:
        """Remember the files as they are now."""
        self._seen = self._stamps()

    async def changed(self) -> Path:
        """Wait until a file differs from what `look` remembered; its path."""
        while (now := self._stamps()) == self._seen:  # noqa: ASYNC110  files have no events here
            await asyncio.sleep(_POLL_SECONDS)
        seen = self._seen
        return min(path for path in now.keys() | seen.keys() if now.get(path) != seen.get(path))

    def _stamps(self) -> dict[Path, int]:
        """The modification times of all files."""
        found: dict[Path, int] = {}
        for looked, (folder, folders, names) in enumerate(os.walk(self._folder)):
            if looked >= _MOST_FOLDERS:
                break
            folders[:] = sorted(
                name for name in folders if not name.startswith(".") and name not in _LEFT_OUT
            )
            for path in (Path(folder, name) for name in names if name.endswith(".py")):
                if (stamp := _stamp(path)) is not None:
                    found[path] = stamp
        return found


def _stamp(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # It was removed after the folder was listed.
        return None
