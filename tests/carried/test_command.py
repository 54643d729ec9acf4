"""`ekiden run` with files of servers that it cannot serve, or not as they are."""

from pathlib import Path

import pytest

from scripts.ports import free_port
from tests.cli.driving import ekiden

IMPORTS = "from mcp.server.mcpserver import MCPServer\n"


def run(folder: Path, text: str, *options: str) -> str:
    """What the command says before it gives up."""
    file = folder / "theirs.py"
    file.write_text(text)
    done = ekiden("run", str(file), "--port", str(free_port()), *options)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("options", [(), ("--workers", "2"), ("--stdio",)])
def test_with_strict_it_refuses_what_cannot_be_carried(tmp_path: Path, options: tuple[str, ...]) -> None:
    text = f"{IMPORTS}async def mine(ctx, call_next): ...\nserver = MCPServer('shop', middleware=[mine])\n"
    said = run(tmp_path, text, "--strict", *options)
    assert "--strict: not all of shop can be carried:" in said
    assert "middleware mine: calls do not pass through it" in said


def test_of_two_servers_one_must_be_chosen(tmp_path: Path) -> None:
    said = run(tmp_path, f"{IMPORTS}one = MCPServer('one')\ntwo = MCPServer('two')\n")
    assert "has 2 servers (one, two); choose one: " in said
    assert "theirs.py:one" in said


def test_a_server_that_runs_when_it_is_loaded_is_refused(tmp_path: Path) -> None:
    said = run(tmp_path, f"{IMPORTS}server = MCPServer('shop')\nserver.run()\n")
    assert "it calls server.run() when it is loaded; put that under if __name__ == '__main__':" in said


def test_a_parked_call_cannot_wait_in_several_workers(tmp_path: Path) -> None:
    said = run(tmp_path, f"{IMPORTS}server = MCPServer('shop')\n", "--resume", "parked", "--workers", "2")
    assert "--resume parked keeps a call in the process that began it: leave --workers out" in said


def test_the_options_for_other_sdks_are_refused_for_a_server_of_ekiden(tmp_path: Path) -> None:
    said = run(tmp_path, "from ekiden import Server\nserver = Server('shop')\n", "--strict")
    assert (
        "has a Server of ekiden: --resume, --strict, --without-auth and --without-middleware are for servers "
        "of other SDKs" in said
    )
