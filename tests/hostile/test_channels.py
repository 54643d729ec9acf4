"""Clients on one channel, as stdio is, that send more than can be answered, or read no answers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden import Context, Server
from ekiden.transports.server.legacy import channel_session
from ekiden.transports.server.memory import MemoryChannel
from tests.serving import PATIENCE, call, soon

_ROOM = channel_session.MAX_IN_FLIGHT
_BUFFERED = 256
"""Answers that the channel keeps for a client which does not read."""


class _Yes(BaseModel):
    ok: bool


def _server() -> Server:
    server = Server("flooded", version="1", keys=[b"k" * 32])

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def hold() -> str:
        await asyncio.Event().wait()
        return ""

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", _Yes)
        return answer.action

    return server


def _old_call(name: str, number: int, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@asynccontextmanager
async def _session_of_2025() -> AsyncGenerator[MemoryChannel, None]:
    client = {"capabilities": {"elicitation": {}}, "clientInfo": {"name": "test", "version": "1"}}
    params = {"protocolVersion": "2025-06-18", **client}
    async with asyncio.timeout(2 * PATIENCE), _server().connect() as channel:
        await channel.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        await channel.receive()
        await channel.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield channel


async def _sent_until_full(channel: MemoryChannel, most: int, message: Callable[[int], Any]) -> int:
    """How many messages are taken before the server waits, up to `most`."""
    taken = 0

    async def send_all() -> None:
        nonlocal taken
        for number in range(1, most + 1):
            await channel.send(message(number))
            taken += 1

    sending = asyncio.create_task(send_all())
    last = -1
    while last != taken and not sending.done():  # Until nothing moves any more.
        last = taken
        await asyncio.sleep(0.3)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    return taken


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_session, "_ROOM_SECONDS", 0.05)


async def test_a_client_of_2025_that_reads_no_answers_is_not_read_for_ever() -> None:
    async with _session_of_2025() as channel:
        taken = await _sent_until_full(channel, 4000, lambda number: _old_call("echo", number, text="hi"))
    assert taken <= 2 * _ROOM + 2 * _BUFFERED


async def test_a_client_of_2025_that_reads_gets_all_answers_however_fast_it_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel_session, "_ROOM_SECONDS", PATIENCE)
    async with _session_of_2025() as channel, asyncio.TaskGroup() as group:

        async def send_all() -> None:
            for number in range(1, 3001):
                await channel.send(_old_call("echo", number, text=str(number)))

        group.create_task(send_all())
        answers = [await soon(channel.receive()) for _ in range(3000)]
    assert {answer["result"]["content"][0]["text"] for answer in answers} == {
        str(number) for number in range(1, 3001)
    }


async def test_requests_too_many_are_refused_and_answers_to_questions_are_still_read() -> None:
    async with _session_of_2025() as channel:
        for number in range(1, _ROOM + 1):
            await channel.send(_old_call("hold" if number > 1 else "ask", number))
        asked = await soon(channel.receive())
        assert asked["method"] == "elicitation/create"
        await channel.send(_old_call("echo", 5000, text="hi"))
        refused = await soon(channel.receive())
        assert (refused["id"], refused["error"]["code"]) == (5000, -32603)
        assert "Too many requests" in refused["error"]["message"]
        await channel.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}})
        assert (await soon(channel.receive()))["result"]["content"][0]["text"] == "decline"
        await channel.send(_old_call("echo", 5001, text="hi"))
        assert (await soon(channel.receive()))["id"] == 5001


@pytest.mark.parametrize("is_old", [False, True])
async def test_long_lines_count_as_many_requests(is_old: bool) -> None:
    long = {"x": "y" * 1_000_000}

    def message(number: int) -> dict[str, Any]:
        if is_old:
            held = _old_call("hold", number)
            return held | {"params": held["params"] | long}
        held = call("hold", request_id=number)
        return held | {"params": held["params"] | long}

    if is_old:
        async with _session_of_2025() as channel:
            for number in range(1, 81):
                await channel.send(message(number))
            assert "Too many requests" in (await soon(channel.receive()))["error"]["message"]
        return
    async with asyncio.timeout(2 * PATIENCE), _server().connect() as channel:
        assert await _sent_until_full(channel, 100, message) < 70
