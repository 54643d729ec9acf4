"""The shell commands of the pages, and a shell that runs them: `ekiden`, `python` and `export`.

Commands that serve go on until the session ends, on ports of their own. The address of the pages stands for
the first of them. Everything happens in a folder of the session, which has the examples in it, and a home.
"""

import os
import re
import shlex
import string
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from scripts.ports import free_port
from tests.cli.driving import PATIENCE, Running, ekiden, running
from tests.docs.blocks import blocks

ROOT: Final = Path(__file__).parent.parent.parent
PAGES: Final = sorted(
    [
        *(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").glob("*/README.md"),
    ]
)

SERVED: Final = "http://127.0.0.1:8000/mcp"
READY: Final = {
    "run": "is served at",
    "gateway": "is served at",
    "dev": "is served at",
    "ui": "of the store: http",
    "worker": "are run by process",
}
"""The commands that go on, and what they say when they are ready."""
_NEW_KEY: Final = "$(ekiden keys new)"
_VARYING: Final = re.compile(r"(?<=token=)\S+|(?<=process )\d+|(?<=127\.0\.0\.1:)\d+")
"""What is different each time it is printed."""
_IMPATIENT: Final = re.compile(r"^ekiden: waiting for .*\n", re.MULTILINE)
"""What is said on a machine that is busy."""


class Command(NamedTuple):
    """A line that a reader types, and what the page says that it prints; None if it says nothing."""

    line: str
    shown: str | None


def commands(text: str) -> list[Command]:
    """All that a page tells to type."""
    found: list[Command] = []
    for language, _, code in blocks(text):
        if language == "console":
            parts = re.split(r"^\$ (.*)\n", code.replace("\\\n", ""), flags=re.MULTILINE)[1:]
            found += [
                Command(line, shown or None) for line, shown in zip(parts[::2], parts[1::2], strict=True)
            ]
        elif language == "sh":
            found += [Command(line, None) for line in code.splitlines() if line.strip()]
    return found


class Shell:
    """One session: its folder, its variables, and the servers that run in it."""

    def __init__(self, folder: Path, instead: Mapping[str, str], stack: ExitStack) -> None:
        self.folder = folder
        self._instead = {"/home/aiko": str(folder / "home"), **instead}
        self._stack = stack
        self._url: str | None = None
        (folder / "home").mkdir(exist_ok=True)
        (folder / "examples").symlink_to(ROOT / "examples")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.variables = {"PATH": path, "HOME": str(folder / "home")}

    def type(self, command: Command, *more: str) -> None:
        """Type a line, with more words at its end, and look at what is printed."""
        line = command.line
        if _NEW_KEY in line:
            line = line.replace(_NEW_KEY, ekiden("keys", "new").stdout.strip())
        line = string.Template(self._as_here(line)).safe_substitute(self.variables)
        words = shlex.split(line, comments=True) + list(more)
        given: dict[str, str] = {}
        while words and re.match(r"[A-Z_]+=", words[0]):
            name, _, given[name] = words.pop(0).partition("=")
        if words[0] == "export":
            self.variables.update(word.split("=", 1) for word in words[1:])
            return
        settings = {**self.variables, **given}
        if words[0] == "ekiden" and words[1] in READY and "--stdio" not in words:
            said = self._serve(words[1:], settings)
            lines = self._plain(said).splitlines()
            for shown in self._plain(command.shown or "").splitlines():
                assert shown in lines, f"{command.line}\n{said}"
            return
        code, said = self._run(words, settings)
        assert code == 0 or command.shown, f"{command.line}\n{said}"
        if command.shown is not None:
            assert self._plain(said) == self._plain(command.shown), f"{command.line}\n{said}"

    def _run(self, words: list[str], settings: dict[str, str]) -> tuple[int, str]:
        if words[0] == "ekiden":
            ended = ekiden(*words[1:], cwd=self.folder, **settings)
            return ended.returncode, _IMPATIENT.sub("", ended.stdout + ended.stderr)
        assert words[0] == "python", f"there is no {words[0]} in this shell"
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=self.folder,
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout

    def _serve(self, words: list[str], settings: dict[str, str]) -> str:
        """Start a server on ports of its own; what it said until it was ready."""
        words = _with_ports(words)
        log = self.folder / f"log-{free_port()}"
        server: Running = self._stack.enter_context(running(log, *words, cwd=self.folder, **settings))
        server.await_saying(READY[words[0]])
        found = re.findall(r"is served at (\S+)", server.said)
        self._url = self._url or next(iter(found), None)
        return server.said

    def _as_here(self, text: str) -> str:
        for theirs, ours in {SERVED: self._url or SERVED, **self._instead}.items():
            text = text.replace(theirs, ours)
        return text

    def _plain(self, text: str) -> str:
        return _VARYING.sub("...", self._as_here(text))


def _with_ports(words: list[str]) -> list[str]:
    """The same command on free ports."""
    for option in ("--port", "--metrics-port"):
        if option in words:
            words[words.index(option) + 1] = str(free_port())
    if words[0] != "worker" and "--port" not in words:
        words += ["--port", str(free_port())]
    if words[0] == "dev":
        words += ["--page-port", str(free_port()), "--no-open"]
    return words


@contextmanager
def shell(folder: Path, files: Mapping[str, str], instead: Mapping[str, str]) -> Generator[Shell, None, None]:
    """A session in a folder that has these files: each a copy of one of the repository, or a text."""
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text((ROOT / content).read_text() if content.startswith("examples/") else content)
    with ExitStack() as stack:
        yield Shell(folder, instead, stack)
