"""Durable tools in hosts that are served over a pipe."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ekiden import Client
from ekiden.server.sealing.keys import new_key
from tests import warm
from tests.inside.callers import accepting
from tests.inside.processes import HOSTS, PATIENCE, ROOT, SCRIPT, interpreter


@pytest.mark.parametrize("mode", ["modern", "legacy"])
@pytest.mark.parametrize("host", HOSTS)
async def test_durable_tools_ask_and_become_tasks_over_a_pipe(host: str, mode: Any, tmp_path: Path) -> None:
    environment = {
        "PYTHONPATH": str(ROOT / "src"),
        "EKIDEN_KEYS": new_key(),
        "NOTES": str(tmp_path),
        "STORE": f"sqlite:///{tmp_path / 'shop.db'}",
    }
    words, python = [str(SCRIPT), host, "stdio"], interpreter(host)
    command = warm.command(*words) if python == sys.executable else [python, *words]
    async with Client(command, mode=mode, env=environment, elicit=accepting, timeout=PATIENCE) as client:
        refunded = await client.call_tool("refund", {"order": "piped"})
        parcel = await client.call_tool("parcel", {"order": "parcel"})
        plain = await client.call_tool("plain", {"x": 3})
    assert [block.text for result in (refunded, parcel, plain) for block in result.content] == [
        "receipt of piped: accept, accept",
        "receipt of parcel, parcel of parcel: accept",
        "3",
    ]
    assert (tmp_path / "piped").read_text().count("charge") == 1
