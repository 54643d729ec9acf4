"""Without the extra `cli`, the command says what to install, and everything else works."""

import subprocess
import sys

import pytest

HIDDEN = (
    "import sys\nfor name in ('typer', 'rich', 'questionary', 'prompt_toolkit'): sys.modules[name] = None\n"
)


def without_the_extra(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDDEN + source], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("arguments", ["[]", "['run', 'server.py']"])
def test_the_command_says_what_to_install(arguments: str) -> None:
    done = without_the_extra(f"sys.argv = ['ekiden', *{arguments}]\nfrom ekiden.cli.main import main\nmain()")
    assert (done.returncode, done.stderr) == (
        2,
        "ekiden: the command line needs an extra: pip install 'ekiden[cli]'\n",
    )


def test_servers_clients_and_the_tests_of_users_work_without_it() -> None:
    done = without_the_extra(
        """
import asyncio
from ekiden import Client, Context, Server
from ekiden.testing import ScriptedClient

server = Server("s", keys=[b"k" * 32])

@server.tool
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Name?", str)).data

server.asgi()

async def main():
    result = await ScriptedClient(server, {"Name?": "Ada"}).call_tool("ask")
    assert result["content"][0]["text"] == "Ada"
    async with Client(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["ask"]

asyncio.run(main())
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
