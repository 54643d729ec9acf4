"""Projects that tests publish, and the command that publishes them."""

import contextlib
import re
from pathlib import Path

from typer.testing import CliRunner

from ekiden.cli.commands import app
from ekiden.errors import UsageError

SERVER = '''
from ekiden import Server

server = Server("Tea shop", version="1.2.0")


@server.tool
def brew(leaf: str) -> str:
    """Brew tea."""
    return f"a cup of {leaf}"


@server.prompt
def offer() -> str:
    return "Offer tea."
'''
PYPROJECT = """
[project]
name = "tea-shop"
version = "1.2.0"
description = "Brews tea."
readme = "README.md"
license = "MIT"
requires-python = ">=3.12"
keywords = ["tea"]
authors = [{ name = "Aiko" }]
dependencies = ["ekiden[cli]>=0.1"]
scripts = { tea-shop = "tea:main" }
urls = { Homepage = "https://tea.example", "Source Code" = "https://github.com/aiko/tea" }
"""
NAME = "io.github.aiko/tea-shop"


def project(folder: Path) -> Path:
    """A project in this folder, and its server."""
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "README.md").write_text(f"# Tea\n<!-- mcp-name: {NAME} -->\n")
    (folder / "src").mkdir()
    (folder / "src" / "tea.py").write_text(SERVER)
    return folder / "src" / "tea.py"


def run(folder: Path, *words: str, fails: str = "") -> str:
    """What a command says in this folder."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, list(words))
    if fails:
        assert isinstance(done.exception, UsageError), done.output
        assert re.search(fails, str(done.exception)), done.exception
    else:
        assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout
