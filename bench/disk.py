"""Folders on the disk of the repository: the system's own for temporary files may lie in memory."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CACHE = Path(__file__).parent.parent / ".cache"


def new_folder() -> Path:
    """A folder that stays."""
    _CACHE.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(dir=_CACHE))


@contextmanager
def passing_folder() -> Iterator[Path]:
    """A folder that is removed after use."""
    _CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as folder:
        yield Path(folder)
