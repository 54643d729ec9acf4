"""A process imports only what it uses."""

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


@pytest.mark.parametrize("source", ["import ekiden; ekiden.Server", SERVE_ONE_CALL])
def test_what_is_heavy_is_imported_by_those_who_use_it(source: str) -> None:
    assert imported_by(source) == set()


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
