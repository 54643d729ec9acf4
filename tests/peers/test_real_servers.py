"""Our client at servers that people run: from the npm registry, and written with older FastMCP.

Each is what its package has, in an environment of its own.
"""

import contextlib
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
import pytest

from ekiden import Client
from scripts.ports import free_port

from . import running
from .foreign import PEERS, SERVERS

pytestmark = pytest.mark.slow

PATIENCE = 60.0
"""Seconds for anything at all: Node and Python take some to start on a busy machine."""
MODULES = running.ROOT / ".peers" / "servers" / "node_modules" / "@modelcontextprotocol"


def node(package: str, *arguments: str) -> list[str]:
    """The command of a server from the npm registry."""
    running.require(running.ROOT / ".peers" / "servers")
    program = runpy.run_path(str(running.ROOT / "scripts" / "npm.py"))["NODE"]
    return [str(program), str(MODULES / package / "dist" / "index.js"), *arguments]


def fastmcp(generation: int) -> list[str]:
    environment = running.ROOT / ".peers" / f"fastmcp{generation}"
    running.require(environment)
    return [str(environment / "bin" / "python"), str(SERVERS / "fastmcp_older.py")]


@contextlib.contextmanager
def listening(command: list[str], port: int, log: Path) -> Iterator[None]:
    """Run a server until the end of the block; it gets its port by argument and in `PORT`."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PORT": str(port)},
        )
    try:
        running.await_listening(process, port, log)
        yield
    finally:
        process.kill()
        process.wait(running.STOP_SECONDS)


async def agree(params: types.ElicitRequestFormParams) -> types.ElicitResult:
    (field,) = params.requested_schema["properties"]
    return types.ElicitResult(action="accept", content={field: 2})


async def sample(params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    words = types.TextContent(text="old pond")
    return types.CreateMessageResult(role="assistant", model="m", content=words)


def client_of(target: str | list[str], **options: Any) -> Client:
    return Client(target, timeout=PATIENCE, start_timeout=PATIENCE, **options)


def text_of(result: types.CallToolResult) -> str:
    assert not result.is_error, result
    return "".join(block.text for block in result.content if block.type == "text")


async def _uses_everything(client: Client) -> None:
    assert client.session.version == "2025-11-25"
    tools = {tool.name for tool in await client.list_tools()}
    assert {"echo", "get-sum", "get-structured-content"} <= tools
    assert text_of(await client.call_tool("echo", {"message": "hello"})) == "Echo: hello"
    weather = await client.call_tool("get-structured-content", {"location": "New York"})
    assert weather.structured_content is not None
    assert set(weather.structured_content) == {"temperature", "conditions", "humidity"}
    sampled = await client.call_tool("trigger-sampling-request", {"prompt": "A haiku", "maxTokens": 40})
    assert "old pond" in text_of(sampled)
    assert await client.list_prompts()
    assert await client.list_resources()


async def test_server_everything_over_stdio() -> None:
    async with client_of(node("server-everything", "stdio"), sample=sample) as client:
        await _uses_everything(client)


@pytest.mark.parametrize(("transport", "path"), [("streamableHttp", "mcp"), ("sse", "sse")])
async def test_server_everything_over_http(transport: str, path: str, tmp_path: Path) -> None:
    port = free_port()
    with listening(node("server-everything", transport), port, tmp_path / "log"):
        async with client_of(f"http://127.0.0.1:{port}/{path}", sample=sample) as client:
            await _uses_everything(client)


async def test_server_filesystem_reads_below_the_roots_of_the_client(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a note")
    command = node("server-filesystem", str(tmp_path))
    async with client_of(command, roots=[tmp_path.as_uri()]) as client:
        assert client.session.version == "2025-11-25"
        read = await client.call_tool("read_text_file", {"path": str(tmp_path / "note.txt")})
        assert text_of(read) == "a note"
        assert (await client.call_tool("read_text_file", {"path": "/etc/passwd"})).is_error


@pytest.mark.parametrize(
    ("package", "arguments", "tool"),
    [
        ("server-github", [], "search_repositories"),
        ("server-postgres", ["postgresql://127.0.0.1:9/none"], "query"),
    ],
)
async def test_a_server_of_2024_11_05_is_spoken_to(package: str, arguments: list[str], tool: str) -> None:
    async with client_of(node(package, *arguments)) as client:
        assert client.session.version == "2024-11-05"
        assert tool in {listed.name for listed in await client.list_tools()}


def late(command: list[str], seconds: int) -> list[str]:
    """A server that takes long to start, as with a first `npx` or `uvx`."""
    return ["sh", "-c", f'sleep {seconds}; exec "$@"', "late", *command]


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: str(peer.name))
async def test_a_delayed_start_does_not_change_the_era(peer: Any) -> None:
    async with client_of(late([*peer.command(), "stdio"], 6)) as client:
        assert client.session.era == peer.eras[0]
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.structured_content == {"total": 3}


@pytest.mark.parametrize("name", ["server-everything", "mcp-2.3", "typescript-2.4"])
async def test_a_server_that_takes_longer_still_is_connected_to(name: str) -> None:
    peers = {peer.name: peer for peer in PEERS}
    command = [*peers[name].command(), "stdio"] if name in peers else node(name, "stdio")
    async with client_of(late(command, 12)) as client:
        tools = {tool.name for tool in await client.list_tools()}
        assert tools & {"add", "echo"}


Transport = Literal["http", "sse", "stdio"]


@pytest.mark.parametrize("transport", ["http", "sse", "stdio"])
@pytest.mark.parametrize("generation", [2, 3])
async def test_a_server_of_older_fastmcp(generation: int, transport: Transport, tmp_path: Path) -> None:
    told: list[Any] = []
    with contextlib.ExitStack() as stack:
        target: str | list[str] = [*fastmcp(generation), "stdio"]
        if transport != "stdio":
            port = free_port()
            command = [*fastmcp(generation), transport, str(port)]
            stack.enter_context(listening(command, port, tmp_path / "log"))
            target = f"http://127.0.0.1:{port}/{'mcp' if transport == 'http' else 'sse'}"
        async with client_of(target, elicit=agree, sample=sample) as client:
            assert (client.session.version, client.session.server_info["name"]) == ("2025-11-25", "older")
            assert await client.call_tool("add", {"a": 1, "b": 2}, result_type=dict) == {"result": 3}
            stations = await client.call_tool("stations", {"line": "Joban"})
            assert stations.structured_content == {"result": ["Joban 1", "Joban 2"]}
            assert (await client.call_tool("fails")).is_error
            ordered = await client.call_tool(
                "order", {"item": "tea"}, progress=lambda *step: told.append(step)
            )
            assert text_of(ordered) == "tea: 2, old pond"
            assert told == [(1, 2, "ordered")]
            (message,) = (await client.get_prompt("briefing", {"topic": "trains"})).messages
            assert getattr(message.content, "text", None) == "Explain trains."
            (page,) = (await client.read_resource("note://mio/page")).contents
            assert getattr(page, "text", None) == "the page of mio"


def test_the_command_line_ends_soon_after_a_server_that_asks_late() -> None:
    """server-everything asks for the roots a moment after the handshake, whenever that is."""
    command = " ".join(node("server-everything", "stdio"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "ekiden.cli", "call", command, "echo", "message=hello"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (0, "Echo: hello\n")
    assert "could not be sent" not in done.stderr
    assert "does not end" not in done.stderr
