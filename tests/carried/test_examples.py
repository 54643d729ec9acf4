"""The servers of the page `serve-other-servers`, before and after, with nothing changed in their files."""

import importlib
import os
import subprocess
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client as OfficialClient
from mcp.shared.exceptions import NoBackChannelError

from ekiden.cli.loading import load_server
from tests.inside.processes import ROOT, interpreter
from tests.serving import soon

EXAMPLES = ROOT / "examples"
BEFORE = """
import asyncio, sys
from mcp.client import Client
from fastmcp import FastMCP
sys.path.insert(0, {folder!r})
from their_fastmcp import mcp

async def main():
    async with Client(mcp._mcp_server, elicitation_callback=lambda *_: None) as client:
        print((await client.call_tool("refund", {{"order_id": "A-17"}})).content[0].text)

asyncio.run(main())
"""


def python(host: str, *arguments: str) -> str:
    done = subprocess.run(
        [interpreter(host), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ekiden(host: str, *arguments: str) -> str:
    return python(host, "-m", "ekiden.cli", *arguments)


def example(host: str) -> Path:
    return EXAMPLES / ("their_fastmcp.py" if host == "fastmcp" else "their_mcpserver.py")


@pytest.mark.parametrize("host", ["mcp", "fastmcp"])
def test_after_the_refund_asks_and_is_made(host: str) -> None:
    answer = ("--answer", "Refund=true", "--era", "modern")
    said = ekiden(host, "call", str(example(host)), "refund", "order_id=A-17", *answer)
    assert said == "Refunded 1250 cents."


async def test_before_a_client_of_2026_gets_no_refund_from_the_official_sdk() -> None:
    async def agree(context: Any, params: Any) -> types.ElicitResult:
        raise AssertionError("nobody is asked")

    theirs: Any = importlib.import_module("examples.their_mcpserver").server
    async with OfficialClient(theirs, elicitation_callback=agree) as client:
        with pytest.raises(NoBackChannelError, match="has no back-channel"):
            await soon(client.call_tool("refund", {"order_id": "A-17"}))


def test_before_a_client_of_2026_gets_no_refund_from_fastmcp() -> None:
    said = python("fastmcp", "-c", BEFORE.format(folder=str(EXAMPLES)))
    assert said == "elicitation via server-initiated requests is unavailable on 2026-07-28 connections."


def test_the_example_leaves_nothing_behind() -> None:
    server: Any = load_server(str(example("mcp")))
    assert server.left_behind == []
