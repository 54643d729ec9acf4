"""The MCPB file itself: a zip of the manifest and the files of a server, equal for equal content."""

import fnmatch
import io
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Final

import msgspec

from ekiden.cli.publishing.manifest import Kind
from ekiden.cli.publishing.project import Facts
from ekiden.errors import UsageError
from ekiden.version import __version__
from ekiden.wire.json import JsonObject, encode

__all__ = ["archived", "packed", "sources_of"]

_LEFT_OUT: Final = (".*", "__pycache__", "node_modules", "dist", "build", "*.pyc", "*.mcpb", "*.egg-info")
"""Hidden files first of all: keys and `.env` do not belong into what is given away."""
_MOST_BYTES: Final = 512 * 1024 * 1024
_FIRST_DAY: Final = 315532800
"""1980-01-01: what zip can say of a time begins here."""


def sources_of(facts: Facts) -> dict[str, Path]:
    """The files of the project by their names in the bundle; of a file that is in no project, itself."""
    if not facts.is_project:
        return {facts.file.name: facts.file}
    ignored = facts.root / ".mcpbignore"
    lines = ignored.read_text().splitlines() if ignored.is_file() else []
    patterns = [*_LEFT_OUT, *(line.strip() for line in lines if line.strip() and not line.startswith("#"))]
    found: dict[str, Path] = {}
    for folder, folders, files in os.walk(facts.root):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not _is_left_out(facts.root, here / name, patterns))
        for name in sorted(files):
            if not _is_left_out(facts.root, here / name, patterns):
                found[(here / name).relative_to(facts.root).as_posix()] = here / name
    return found


def packed(facts: Facts, kind: Kind, sources: dict[str, Path]) -> dict[str, bytes]:
    """What is in the bundle beside the manifest. Type `python` has its packages in `server/lib`."""
    files = {name: file.read_bytes() for name, file in sources.items()}
    needed = [f"ekiden[cli]=={__version__}"]
    if facts.is_project:
        if not any(line.replace(" ", "").startswith("ekiden") for line in facts.dependencies):
            raise UsageError(
                f"{facts.root / 'pyproject.toml'} does not name ekiden[cli] among its dependencies"
            )
        needed = facts.dependencies
    elif kind == "uv":
        files["pyproject.toml"] = _pyproject(facts, needed).encode()
    if kind == "python":
        files |= _installed(needed)
    if sum(len(data) for data in files.values()) > _MOST_BYTES:
        raise UsageError(f"the bundle has more than {_MOST_BYTES} bytes; .mcpbignore says what is left out")
    return files


def archived(manifest: JsonObject, files: dict[str, bytes]) -> bytes:
    """The bytes of the file. Names are in order, and times are SOURCE_DATE_EPOCH or the first day of 1980."""
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH") or _FIRST_DAY), _FIRST_DAY))
    content = {**files, "manifest.json": msgspec.json.format(encode(manifest), indent=2) + b"\n"}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(content, key=lambda name: (name != "manifest.json", name)):
            entry = zipfile.ZipInfo(name, when[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content[name])
    return buffer.getvalue()


def _is_left_out(root: Path, path: Path, patterns: list[str]) -> bool:
    if path.is_symlink() or (path / "pyvenv.cfg").is_file():
        return True
    whole = path.relative_to(root).as_posix()
    for pattern in patterns:
        wanted = pattern.strip("/")
        if fnmatch.fnmatch(whole, wanted) or ("/" not in wanted and fnmatch.fnmatch(path.name, wanted)):
            return True
    return False


def _pyproject(facts: Facts, needed: list[str]) -> str:
    lines = [
        "[project]",
        f"name = {encode(facts.name).decode()}",
        f"version = {encode(facts.version).decode()}",
        f"requires-python = {encode(facts.requires_python).decode()}",
        f"dependencies = {encode(needed).decode()}",
    ]
    return "\n".join(lines) + "\n"


def _installed(needed: list[str]) -> dict[str, bytes]:
    """The packages of a server, as pip installs them for this system."""
    with tempfile.TemporaryDirectory() as name:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--target",
            name,
            *needed,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise UsageError(f"pip could not install what the server needs: {done.stderr.strip()[-1000:]}")
        folder = Path(name)
        files = sorted(
            file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts
        )
        return {f"server/lib/{file.relative_to(folder).as_posix()}": file.read_bytes() for file in files}
