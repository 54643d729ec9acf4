"""The sessions in "how to use the command line" are real: each command prints what the page says."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.driving import ekiden, running

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "command-line.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
ID = re.compile(r"\b[0-9a-f]{32}\b")
SERVED = "http://127.0.0.1:8000/mcp"


def sessions() -> list[list[tuple[str, str]]]:
    """The commands of each block, and what they print."""
    blocks: list[list[tuple[str, str]]] = []
    for block in BLOCK.findall(PAGE.read_text()):
        parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
        blocks.append(list(zip(parts[::2], parts[1::2], strict=True)))
    return blocks


@pytest.mark.parametrize("session", sessions(), ids=lambda session: session[0][0][:40])
def test_a_session_of_the_page_prints_what_the_page_says(
    session: list[tuple[str, str]], tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/returns.db"
    returns = ("run", "examples/returns.py", "--port", "0", "--store", store)
    with running(tmp_path / "log", *returns, cwd=ROOT) as server:
        server.await_saying("is served at")
        url = re.findall(r"is served at (\S+)", server.said)[0]
        ids: dict[str, str] = {}  # Those of the page, and those of this run.
        for command, printed in session:
            program, *words = shlex.split(as_run(command, url, ids))
            assert program == "ekiden"
            done = ekiden(*words, cwd=ROOT)
            said = done.stdout + done.stderr
            ids.update(zip(ID.findall(printed), ID.findall(said), strict=True))
            assert said == as_run(printed, url, ids), command


def as_run(text: str, url: str, ids: dict[str, str]) -> str:
    return ID.sub(lambda found: ids.get(found[0], found[0]), text.replace(SERVED, url))


def test_every_new_command_has_a_session() -> None:
    commands = [command for session in sessions() for command, _ in session]
    for words in (
        "prompt ",
        "read ",
        "call .* --detach",
        "tasks .* wait ",
        "tasks .* answer ",
        "tasks .* cancel ",
    ):
        assert any(re.match(f"ekiden {words}", command) for command in commands), words
