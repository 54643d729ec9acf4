"""Tries an installed ekiden, with nothing but this file: `python smoke.py VERSION [--extras]`.

`make release` copies it out of the repository and runs it in a clean environment of each Python: first with
the extra `cli` alone, then with `--extras`, when all extras that go together are installed.
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

OF_EXTRAS = (
    "ekiden.cli.developing",
    "ekiden.integrations",
    "ekiden.pages",
    "ekiden.stores.postgres",
)
"""What may need more than `cli` installs."""
OF_FASTMCP = tuple(
    f"ekiden.integrations.{name}"
    for name in (
        "carried.fastmcp_server",
        "fastmcp",
        "inside.components",
        "inside.fastmcp_host",
        "inside.fastmcp_parts",
    )
)
"""FastMCP is a host of its own, and not installed here."""
RUNS = ("ekiden.cli.__main__",)
"""What runs when it is imported."""
NAMES_OF_EXTRAS = {"Pages"}
"""Public names that say which extra they need."""

SERVER = '''
from ekiden import Context, Server

server = Server("smoke", keys=[b"k" * 32])


@server.tool
async def greet(ctx: Context) -> str:
    """Greet somebody."""
    return f"Hello, {(await ctx.elicit('Who are you?', str)).data}!"
'''


def main(version: str, *, extras: bool) -> None:
    """Everything is tried; the first failure ends it."""
    home = Path(ekiden.__file__).resolve()
    assert "site-packages" in home.parts, f"{home} is not what was installed"
    assert ekiden.__version__ == version, f"it says it is {ekiden.__version__}"
    assert (home.parent / "py.typed").is_file(), "py.typed is missing"
    for name in ekiden.__all__:
        if extras or name not in NAMES_OF_EXTRAS:
            assert getattr(ekiden, name) is not None
        else:
            assert "pip install ekiden[" in refused(name)
    modules = imported(RUNS + OF_FASTMCP if extras else RUNS + OF_EXTRAS)
    asyncio.run(in_memory())
    with tempfile.TemporaryDirectory() as folder:
        over_stdio(Path(folder) / "server.py", version)
    python = sys.version.split()[0]
    installed = "all extras" if extras else "cli"
    tried = f"{modules} modules, a call in memory, one by stdio"
    print(f"ekiden {version} on Python {python} with {installed}: {tried}")


def refused(name: str) -> str:
    """What a public name says whose extra is not installed."""
    try:
        getattr(ekiden, name)
    except ekiden.UsageError as error:
        return str(error)
    raise AssertionError(f"{name} was there without its extra")


def imported(left_out: tuple[str, ...]) -> int:
    """Import every module but these, and say how many there were."""
    found = pkgutil.walk_packages(ekiden.__path__, "ekiden.", onerror=lambda _: None)
    names = [module.name for module in found if not module.name.startswith(left_out)]
    for name in names:
        importlib.import_module(name)
    return len(names)


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
    main(sys.argv[1], extras="--extras" in sys.argv)
