"""How a host starts a server: interpreter, words, variables; or where one runs already."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ekiden.cli.loading import split_spec
from ekiden.errors import UsageError

__all__ = ["Launch", "Remote", "launch_of", "project_of"]

_PROJECT: str = "pyproject.toml"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A command that serves stdin and stdout."""

    command: str
    """An absolute path: a host that was started from a desktop has a shorter PATH than a shell."""
    args: list[str]
    env: Mapping[str, str]
    """Variables with their values."""
    secrets: list[str]
    """Variables whose values are not written down: the host asks for them, or has them already."""


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """A server that runs already."""

    url: str
    headers: Mapping[str, str]


def launch_of(
    spec: str, *, python: Path | None, uv: bool | None, env: Mapping[str, str], secrets: list[str]
) -> Launch:
    """How to start the server of `FILE[:NAME]`.

    The interpreter is `python`; or that of `uv run`, if the file is in a project with a `uv.lock` and uv is
    here; or that of the project's `.venv`; or the one that runs this command.
    """
    path, name = split_spec(spec)
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    file = path.resolve()
    serve = "gateway" if file.suffix == ".json" else "run"
    words = ["-m", "ekiden.cli", serve, str(file) if name is None else f"{file}:{name}", "--stdio"]
    root = project_of(file)
    if uv is None:
        uv = python is None and root is not None and (root / "uv.lock").is_file() and bool(shutil.which("uv"))
    if uv:
        return Launch(
            command=_uv(), args=["run", *_of_uv(root, python), "python", *words], env=env, secrets=secrets
        )
    if python is not None and not python.is_file():
        raise UsageError(f"--python {python}: there is no such file")
    chosen = python or _python_of(file, root)
    # Not resolved: the link in an environment is what makes its packages known.
    return Launch(command=str(Path(os.path.abspath(chosen))), args=words, env=env, secrets=secrets)  # noqa: PTH100


def project_of(file: Path) -> Path | None:
    """The nearest folder above a file that has a `pyproject.toml`."""
    return next((folder for folder in file.parents if (folder / _PROJECT).is_file()), None)


def _uv() -> str:
    found = shutil.which("uv")
    if found is None:
        raise UsageError("--uv: there is no uv on the PATH")
    return str(Path(found).absolute())


def _of_uv(root: Path | None, python: Path | None) -> list[str]:
    from ekiden.version import __version__

    project = ["--with", f"ekiden[cli]=={__version__}"] if root is None else ["--project", str(root)]
    return [*project, *([] if python is None else ["--python", str(python)])]


def _python_of(file: Path, root: Path | None) -> Path:
    """That of the `.venv` in the project, or beside the file; or else the one that runs this command."""
    inside = Path("Scripts", "python.exe") if sys.platform == "win32" else Path("bin", "python")
    for folder in (file.parent, *([] if root is None else [root])):
        if (found := folder / ".venv" / inside).is_file():
            return found
    return Path(sys.executable)
