"""The code of the pages on moving over: with the same answers, a call ends alike on both sides."""

import os
import sys
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    TextContent,
)

from ekiden import Client, Server, TaskHandle
from ekiden.testing import DECLINE, ScriptedClient
from tests.peers.running import require

ROOT: Final = Path(__file__).parent.parent.parent
MOVING: Final = ROOT / "examples" / "moving"
Mode = Literal["modern", "legacy"]

ANSWERS: Final = {
    "Refund 1250 cents for A-17?": {"ok": True},
    "Refund 480 cents for A-18?": None,
    "Which paper?": {"value": "blue"},
    "Where does A-17 go?": {"value": "Kyo-machi"},
    "Where does A-18 go?": None,
    "To Kyo-machi on which day?": {"value": "Monday"},
}
"""What the user says to each question; `None` declines it."""

ENDS: Final = {
    ("price", "A-17"): (False, "1250 cents"),
    ("price", "B-1"): (True, "There is no order B-1."),
    ("refund", "A-17"): (False, "Refunded 1250 cents for A-17."),
    ("refund", "A-18"): (False, "Not refunded."),
    ("wrap", "A-17"): (False, "A-17 in blue"),
    ("deliver", "A-17"): (False, "A-17 goes to Kyo-machi on Monday."),
    ("deliver", "A-18"): (False, "Not delivered."),
    ("slogan", "tea"): (False, "Tea, at last."),
    ("orders://{order_id}", "A-18"): (False, "A-18: 480 cents"),
    ("apology", "A-18"): (False, "Write an apology for order A-18."),
}
"""How each call ends: whether it failed, and what it says."""

ANYWHERE: Final = {"price", "orders://{order_id}", "apology"}
CASES: Final[dict[tuple[str, Mode], set[str]]] = {
    ("fastmcp", "legacy"): {"refund", "wrap", "slogan"},
    ("fastmcp", "modern"): {"deliver"},
    ("mcp2", "legacy"): {"refund", "wrap", "slogan"},
    ("mcp2", "modern"): {"wrap", "deliver"},
    ("mcp1", "legacy"): {"refund", "wrap", "deliver", "slogan"},
}
"""Which tools that ask work on the other side, for clients of which era."""


IN_FRONT: Final = "Error executing tool price: "
"""What the official SDK puts in front of the text of a `ToolError`, as the page says."""


async def elicit(params: ElicitRequestFormParams) -> ElicitResult:
    content: Any = ANSWERS[params.message]
    return ElicitResult(action="accept", content=content) if content else ElicitResult(action="decline")


async def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", model="poet", content=TextContent(text="Tea, at last."))


def command(side: str) -> list[str]:
    """How a server of the other side is started."""
    if side == "mcp2":
        return [sys.executable, str(MOVING / "shop_mcp2.py")]
    require(environment := ROOT / ".peers" / side)
    return [str(environment / "bin" / "python"), str(MOVING / f"shop_{side}.py")]


async def ends(target: Any, mode: Mode, names: set[str]) -> dict[tuple[str, str], tuple[bool, str]]:
    """How the calls of these names end."""
    ended: dict[tuple[str, str], tuple[bool, str]] = {}
    async with Client(target, mode=mode, elicit=elicit, sample=sample, env=dict(os.environ)) as client:
        for name, argument in ENDS:
            if name not in names:
                continue
            if "://" in name:
                contents: Any = (await client.read_resource(name.format(order_id=argument))).contents
                ended[name, argument] = (False, contents[0].text)
            elif name == "apology":
                said: Any = (await client.get_prompt(name, {"order_id": argument})).messages
                ended[name, argument] = (False, said[0].content.text)
            else:
                key = "product" if name == "slogan" else "order_id"
                result: Any = await client.call_tool(name, {key: argument})
                ended[name, argument] = (bool(result.is_error), result.content[0].text)
    return ended


def expected(names: set[str]) -> dict[tuple[str, str], tuple[bool, str]]:
    return {call: end for call, end in ENDS.items() if call[0] in names}


def ours(module: str, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.syspath_prepend(str(MOVING))
    server = __import__(module).server
    assert isinstance(server, Server)
    return server


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_the_shop_on_ekiden_does_all_of_it_for_clients_of_both_eras(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ours("shop_ekiden", monkeypatch)
    async with server.running():
        assert await ends(server, mode, {name for name, _ in ENDS}) == ENDS


@pytest.mark.parametrize(("side", "mode"), CASES)
async def test_a_call_ends_on_the_other_side_as_on_ours(side: str, mode: Mode) -> None:
    names = CASES[side, mode] | ANYWHERE
    wanted = expected(names)
    if side != "fastmcp":
        wanted["price", "B-1"] = (True, f"{IN_FRONT}There is no order B-1.")
    assert await ends(command(side), mode, names) == wanted


async def said(client: ScriptedClient, tool: str, **arguments: Any) -> str:
    result: Any = await client.call_tool(tool, arguments)
    return str(result["content"][0]["text"])


async def test_the_tools_of_the_guides_end_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ours("guides_ekiden", monkeypatch)
    answers = {
        "Go on with deploy?": True,
        "Which units?": "celsius",
        "What is your name?": "Ada",
        "Hi Ada! How old are you?": 36,
        "Start web-1? This costs money.": True,
        "roots": ["file:///srv/shop"],
    }
    async with server.running():
        told = {
            "confirm": await said(client := ScriptedClient(server, answers), "confirm", action="deploy"),
            "weather": await said(client, "weather", city="Hakone"),
            "weather_by_hand": await said(client, "weather_by_hand", city="Hakone"),
            "wizard": await said(client, "wizard"),
            "later": await said(client, "later"),
            "start_machine": await said(client, "start_machine", name="web-1"),
            "where": await said(client, "where"),
        }
        declined = ScriptedClient(server, {"Go on with deploy?": DECLINE})
        assert await said(declined, "confirm", action="deploy") == "Cancelled."
    assert told == {
        "confirm": "Confirmed.",
        "weather": "Hakone: 9 celsius",
        "weather_by_hand": "Hakone: 9 celsius",
        "wizard": "Welcome, Ada! You are 36 years old.",
        "later": "Done: step 1",
        "start_machine": "web-1 runs.",
        "where": "file:///srv/shop",
    }


async def test_the_machine_of_the_guides_starts_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ours("guides_ekiden", monkeypatch)

    async def agree(params: ElicitRequestFormParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"value": True})

    async with server.running(), Client(server, elicit=agree) as client:
        handle: Any = await client.start_tool("start_machine", {"name": "web-2"})
        answered = {key: ElicitResult(action="accept", content={"value": True}) for key in handle.requests}
        task: Any = await client.resume(handle, answered)
        assert isinstance(task, TaskHandle)
        assert (await client.call_tool("start_machine", {"name": "web-2"})).content[0].text == "web-2 runs."  # type: ignore[union-attr]
