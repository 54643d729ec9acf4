"""The example of the page about gateways, as the page runs it."""

import os
import sys
from pathlib import Path
from typing import Any

from ekiden import Client
from tests.gateway.in_front import elicit
from tests.gateway.processes import ROOT, running

FOLDER = ROOT / "examples" / "gateway"


async def test_the_gateway_of_the_example_asks_and_reads(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["gateway", "examples/gateway/mcp.json"]
    async with running(command, tmp_path / "log", PATH=path, CURRENCY="CHF") as server:
        asked: list[str] = []

        async def answer(params: Any) -> Any:
            asked.append(params.message)
            return await elicit(params)

        async with Client(server.url, elicit=answer) as client:
            result = await client.call_tool("billing_refund", {"order_id": "A-17", "amount": 12.5})
            assert result.content[0].text == "A-17: refunded"  # type: ignore[union-attr]
            note = await client.read_resource("notes+note://milk")
            assert note.contents[0].text == "Remember milk."  # type: ignore[union-attr]
        assert asked == ["Refund 12.50 CHF for A-17?"]


async def test_the_composed_server_of_the_example_has_both() -> None:
    sys.path.insert(0, str(FOLDER))
    try:
        from composed import shop  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(FOLDER))
    async with Client(shop) as client:
        balance = await client.call_tool("billing_balance", {"customer": "Ada"})
        assert balance.content[0].text == "Ada owes nothing."  # type: ignore[union-attr]
        note = await client.read_resource("notes+note://milk")
        assert note.contents[0].text == "Remember milk."  # type: ignore[union-attr]
