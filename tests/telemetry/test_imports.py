"""A process imports only what it uses."""

import os
import subprocess
import sys

import pytest

from tests.serving import PATIENCE

HEAVY = ["opentelemetry", "mcp_types", "uvicorn", "jsonschema_rs"]


def imported_by(source: str) -> set[str]:
    report = f"{source}\nimport sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return set(done.stdout.split())


SERVE_ONE_CALL = """
import asyncio
from ekiden import Server

server = Server("s")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

async def main():
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    async with server.connect() as channel:
        for method in ("tools/list", "tools/call"):
            params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
            await channel.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            assert "result" in await channel.receive()

asyncio.run(main())
"""


CALL_OVER_ROUNDS = """
import asyncio
from ekiden import Context, Server
from ekiden.client.client import Client

server = Server("s")

@server.tool
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Name?", str)).data

async def answer(params):
    from mcp_types import ElicitResult
    return ElicitResult(action="accept", content={"value": "Ada"})

async def main():
    async with Client(server, elicit=answer) as client:
        assert (await client.call_tool("ask")).content[0].text == "Ada"

asyncio.run(main())
"""


def test_a_call_over_rounds_imports_no_opentelemetry_on_either_side() -> None:
    assert "opentelemetry" not in imported_by(CALL_OVER_ROUNDS)


@pytest.mark.parametrize("source", ["import ekiden; ekiden.Server", SERVE_ONE_CALL])
def test_what_is_heavy_is_imported_by_those_who_use_it(source: str) -> None:
    assert imported_by(source) == set()


ON_STDIO = """
import json, os
from ekiden import Context, Server

server = Server("s")

@server.tool
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Sure?", bool)).action

meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
reading, writing = os.pipe()
with open(writing, "w") as client:
    for number, method in enumerate(("server/discover", "tools/list", "tools/call")):
        params = {"name": "ask", "arguments": {}, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        client.write(json.dumps(message) + chr(10))
os.dup2(reading, 0)
server.run("stdio")
"""


def test_a_server_on_stdio_imports_nothing_of_http_and_warns_of_no_keys() -> None:
    names = [*HEAVY, "httptools", "ekiden.server.serving.http", "ekiden.transports.server.asgi"]
    report = f"{ON_STDIO}\nimport sys; print(*[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", report],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("EKIDEN_")},
    )
    *answers, imported = done.stdout.split("\n")[:-1]
    assert [("input_required" in answer, "error" in answer) for answer in answers].count((True, False)) == 1
    assert (len(answers), imported, done.stderr) == (3, "", "")


def test_a_first_answer_on_stdio_needs_nothing_that_seals_or_explains_mistakes() -> None:
    source = ON_STDIO.replace(', "tools/call"', "")
    assert source != ON_STDIO
    names = [*HEAVY, "cryptography", "difflib", "sqlite3", "psycopg", "httptools"]
    report = f"{source}\nimport sys; print(*[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    *answers, imported = done.stdout.split("\n")[:-1]
    assert (len(answers), imported) == (2, "")


def test_importing_the_package_alone_imports_next_to_nothing() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import ekiden, sys; print(*[m for m in ('pydantic', 'msgspec', 'asyncio') if m in sys.modules])",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.split() == []
