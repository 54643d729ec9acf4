"""Skills that lie in a folder: every directory with a `SKILL.md` is one."""

from collections.abc import Iterator
from pathlib import Path

from ekiden.errors import RegistrationError
from ekiden.server.skills.skill import Skill, read_files
from ekiden.wire.extensions.skills import FILE_NAME, MOST_BYTES, MOST_FILES

__all__ = ["read_folder"]

_LEFT_OUT = "__pycache__"


def read_folder(folder: Path, prefix: str) -> list[Skill]:
    """All skills in a folder, also those within others. The folder may be a skill itself.

    Names that begin with a dot are left out. A link that leads out of the folder is refused.
    """
    if not folder.is_dir():
        raise RegistrationError(f"there is no folder {str(folder)!r} to read skills from")
    root = folder.resolve()
    start = root.name if (root / FILE_NAME).is_file() else ""
    found = [
        read_files(_joined(prefix, start, _path(directory, root)), _contents(directory, root))
        for directory in _directories(root)
        if (directory / FILE_NAME).is_file()
    ]
    if not found:
        raise RegistrationError(f"no directory in {str(folder)!r} has a {FILE_NAME}")
    return found


def _joined(*parts: str) -> str:
    return "/".join(part.strip("/") for part in parts if part.strip("/"))


def _path(path: Path, above: Path) -> str:
    relative = path.relative_to(above).as_posix()
    return "" if relative == "." else relative


def _children(directory: Path, root: Path) -> list[Path]:
    children = sorted(
        child for child in directory.iterdir() if not child.name.startswith(".") and child.name != _LEFT_OUT
    )
    for child in children:
        _check(child, root)
    return children


def _check(child: Path, root: Path) -> None:
    try:
        child.name.encode()
    except UnicodeEncodeError:
        raise RegistrationError(f"{str(child)!r} has a name that is not UTF-8: rename it") from None
    try:
        target = child.resolve(strict=True)
    except FileNotFoundError:
        target = child.resolve()
    except (OSError, RuntimeError):  # RuntimeError until Python 3.12.
        raise RegistrationError(f"{str(child)!r} is a link that leads in circles") from None
    if not target.is_relative_to(root):
        raise RegistrationError(f"{str(child)!r} is a link that leads out of the folder of skills")


def _directories(root: Path) -> Iterator[Path]:
    """The folder and all directories below it. A link to a directory is not followed: it may lead back."""
    yield root
    for child in _children(root, root):
        if child.is_dir() and not child.is_symlink():
            yield from _below(child, root)


def _below(directory: Path, root: Path) -> Iterator[Path]:
    yield directory
    for child in _children(directory, root):
        if child.is_dir() and not child.is_symlink():
            yield from _below(child, root)


def _contents(directory: Path, root: Path) -> dict[str, bytes]:
    """All files of a skill, those of skills within it included."""
    files = {FILE_NAME: _read(directory / FILE_NAME)}
    size = 0
    for place in _below(directory, root):
        for child in _children(place, root):
            if not child.is_file():
                continue
            content = _read(child)
            files[_path(child, directory)] = content
            size += len(content)
            if len(files) > MOST_FILES or size > MOST_BYTES:
                return files  # The skill is refused: no more needs to be read to know that.
    return files


def _read(file: Path) -> bytes:
    """A file, or so much of it that it is known to be too large."""
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise RegistrationError(f"{str(file)!r} cannot be read: {error.strerror or error}") from None
