"""Tries an installed ekiden, with nothing but this file: `python smoke.py VERSION`.

`make release` copies it out of the repository and runs it in a clean environment of each Python. It needs the
extra `cli`.
"""

import asyncio
import importlib
import pkgutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ekiden
from ekiden.testing import ScriptedClient

OF_EXTRAS = ("ekiden.integrations", "ekiden.server.auth", "ekiden.stores.postgres", "ekiden.cli.__main__")
"""What needs more than is installed here, or runs when it is imported."""

SERVER = '''
from ekiden import Context, Server

server = Server("smoke", keys=[b"k" * 32])


@server.tool
async def greet(ctx: Context) -> str:
    """Greet somebody."""
    return f"Hello, {(await ctx.elicit('Who are you?', str)).data}!"
'''


def main(version: str) -> None:
    """Everything is tried; the first failure ends it."""
    home = Path(ekiden.__file__).resolve()
    assert "site-packages" in home.parts, f"{home} is not what was installed"
    assert ekiden.__version__ == version, f"it says it is {ekiden.__version__}"
    assert (home.parent / "py.typed").is_file(), "py.typed is missing"
    for name in ekiden.__all__:
        assert getattr(ekiden, name) is not None
    modules = [
        found.name for found in pkgutil.walk_packages(ekiden.__path__, "ekiden.", onerror=lambda _: None)
    ]
    for module in modules:
        if not module.startswith(OF_EXTRAS):
            importlib.import_module(module)
    asyncio.run(in_memory())
    with tempfile.TemporaryDirectory() as folder:
        over_stdio(Path(folder) / "server.py", version)
    python = sys.version.split()[0]
    print(f"ekiden {version} on Python {python}: {len(modules)} modules, a call in memory, one by stdio")


async def in_memory() -> None:
    """A call that asks, without a transport."""
    names: dict[str, object] = {}
    exec(SERVER, names)
    server = names["server"]
    assert isinstance(server, ekiden.Server)
    result = await ScriptedClient(server, {"Who are you?": "Aiko"}).call_tool("greet")
    assert result["content"][0]["text"] == "Hello, Aiko!", result


def over_stdio(file: Path, version: str) -> None:
    """The same by the command line, with a server in a process of its own."""
    file.write_text(SERVER)
    command = str(Path(sys.executable).parent / "ekiden")
    assert said(command, "--version") == f"ekiden {version}\n"
    serve = f"{command} run {file} --stdio"
    assert "greet" in said(command, "tools", serve)
    assert "Hello, Aiko!" in said(command, "call", serve, "greet", "--answer", "Who are you?=Aiko")


def said(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1])
