"""Servers on stdio that are slow to start, or that answer only some of the first messages.

A server here first waits until the client has written so many messages, as one does that is still being
downloaded, and then answers them in an order of its own.
"""

import asyncio
import json
import sys
from typing import Any, Final

import pytest

from ekiden import CallTimeout, Client, ServerError
from ekiden.client.sessions import starting
from tests.serving import PATIENCE, soon

SOURCE: Final = """
import json, sys

late, order, answers = json.loads(sys.argv[1])
heard, waiting = [], [json.loads(sys.stdin.readline()) for _ in range(late)]
waiting.sort(key=lambda message: order.index(message["method"]))

def answer(message):
    heard.append(message)
    reply = {"result": {"content": [], "_meta": {"heard": heard}}} if "id" in message else None
    if message["method"] in ("server/discover", "ping", "initialize"):
        reply = answers.get(message["method"])
    if reply is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)

for message in waiting:
    answer(message)
for line in sys.stdin:
    answer(json.loads(line))
"""

MODERN: Final = {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {}}}
WELCOME: Final = {
    "result": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "serverInfo": {"name": "old", "version": "1"},
    }
}
REFUSED: Final = {"error": {"code": -32601, "message": "Method not found"}}
PONG: Final[dict[str, Any]] = {"result": {}}
FIRST: Final = ["server/discover", "ping", "initialize"]


def server(late: int, answers: dict[str, Any], order: list[str] = FIRST) -> list[str]:
    """A server that begins to answer when `late` messages wait for it; what has no answer stays silent."""
    return [sys.executable, "-c", SOURCE, json.dumps([late, order, answers])]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_PROBE_SECONDS", 0.3)
    monkeypatch.setattr(starting, "_SILENT_SECONDS", 0.3)
    monkeypatch.setattr(starting, "_TURN_SECONDS", 0.3)


async def heard_by(command: list[str]) -> tuple[str, list[dict[str, Any]]]:
    """The era that a client finds, and all that the server heard up to a call."""
    async with asyncio.timeout(PATIENCE), Client(command) as client:
        called = await client.call_tool("any")
        assert called.meta is not None
        return client.session.era, called.meta["heard"]


def methods(heard: list[dict[str, Any]]) -> list[str]:
    return [message["method"] for message in heard]


@pytest.mark.parametrize("order", [FIRST, FIRST[::-1]], ids=["in order", "in reverse order"])
async def test_a_modern_server_that_starts_slowly_is_found_modern(
    order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_SILENT_SECONDS", PATIENCE)
    monkeypatch.setattr(starting, "_TURN_SECONDS", PATIENCE)
    era, heard = await heard_by(server(2, {"server/discover": MODERN, "ping": REFUSED}, order))
    assert era == "modern"
    assert sorted(methods(heard)) == ["ping", "server/discover", "tools/call"]


async def test_a_server_of_2025_that_starts_slowly_is_greeted_once() -> None:
    answers = {"server/discover": REFUSED, "ping": PONG, "initialize": WELCOME}
    for late in (1, 2, 3):
        era, heard = await heard_by(server(late, answers))
        assert era == "legacy"
        assert methods(heard)[-3:] == ["initialize", "notifications/initialized", "tools/call"]
        assert methods(heard).count("initialize") == 1


async def test_a_late_answer_to_the_probe_is_not_taken_for_that_of_the_handshake() -> None:
    answers = {"server/discover": REFUSED, "initialize": WELCOME}
    era, heard = await heard_by(server(3, answers))
    assert era == "legacy"
    ids = [message["id"] for message in heard if "id" in message]
    assert len(ids) == len(set(ids))


async def test_a_server_that_answers_no_more_than_a_ping_is_greeted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_SILENT_SECONDS", PATIENCE)
    era, heard = await heard_by(server(1, {"ping": PONG, "initialize": WELCOME}))
    assert era == "legacy"
    assert methods(heard)[:3] == ["server/discover", "ping", "initialize"]


async def test_a_server_that_answers_nothing_but_the_handshake_is_greeted() -> None:
    era, heard = await heard_by(server(1, {"initialize": WELCOME}))
    assert era == "legacy"
    assert methods(heard)[:3] == ["server/discover", "ping", "initialize"]


@pytest.mark.parametrize("refusal", [REFUSED, None], ids=["refused", "silent"])
async def test_a_server_that_does_not_take_a_late_handshake_is_still_modern(refusal: Any) -> None:
    answers = {"server/discover": MODERN, "ping": REFUSED, "initialize": refusal}
    for order in (FIRST, FIRST[::-1]):
        era, heard = await heard_by(server(3, answers, order))
        assert era == "modern"
        assert "notifications/initialized" not in methods(heard)


async def test_a_server_that_has_taken_the_handshake_is_spoken_to_as_it_understood() -> None:
    answers = {"server/discover": MODERN, "ping": REFUSED, "initialize": WELCOME}
    era, _ = await heard_by(server(3, answers))
    assert era == "legacy"


async def test_a_server_that_refuses_everything_says_why() -> None:
    answers = {"server/discover": REFUSED, "ping": REFUSED, "initialize": REFUSED}
    for late in (1, 3):
        with pytest.raises(ServerError, match="Method not found"):
            await heard_by(server(late, answers))


async def test_the_start_has_a_limit_of_its_own() -> None:
    slow = server(2, {"server/discover": MODERN, "ping": REFUSED})
    async with asyncio.timeout(PATIENCE), Client(slow, timeout=0.2, start_timeout=PATIENCE) as client:
        assert client.session.era == "modern"
    with pytest.raises(CallTimeout, match=r"Connecting did not end within 0\.5 seconds"):
        await soon(Client(server(9, {}), start_timeout=0.5).__aenter__())
