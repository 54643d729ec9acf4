"""When do files change? Looked up now and then: a few hundred `stat` calls need no library."""

import asyncio
import os
from pathlib import Path
from typing import Final

__all__ = ["FileWatch"]

_POLL_SECONDS: Final = 0.3
_MOST_FOLDERS: Final = 500
"""Somebody's home directory is not looked through again and again."""
_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})


class FileWatch:
    """Watches the Python files beside and below a file."""

    def __init__(self, file: Path) -> None:
        self._folder = file.resolve().parent
        self._seen: dict[Path, int] = {}

    def look(self) -> None:
        """What is there now counts as known."""
        self._seen = self._stamps()

    async def changed(self) -> Path:
        """Wait until a file is other than it was at the last `look`; which one."""
        while (now := self._stamps()) == self._seen:  # noqa: ASYNC110  files have no events here
            await asyncio.sleep(_POLL_SECONDS)
        seen = self._seen
        return min(path for path in now.keys() | seen.keys() if now.get(path) != seen.get(path))

    def _stamps(self) -> dict[Path, int]:
        """When each file was written last."""
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
    except OSError:  # It was removed since the folder was listed.
        return None
