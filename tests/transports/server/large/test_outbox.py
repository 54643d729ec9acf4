"""Answers wait for the channel that carries them, and handlers for those who read them."""

import asyncio
import json
from typing import Any

import pytest

from ekiden import Server
from ekiden.transports.server.conversation import Conversation
from ekiden.transports.server.large.outbox import Outbox
from ekiden.transports.server.large.results import MOST
from tests.serving import call, soon

MEGABYTE = 1024 * 1024
OPENING = {
    "jsonrpc": "2.0",
    "id": "open",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    },
}


class Pipe:
    """Takes messages only while somebody reads."""

    def __init__(self) -> None:
        self.read = asyncio.Event()
        self.messages: list[bytes] = []

    async def send(self, message: bytes) -> None:
        await self.read.wait()
        self.messages.append(message)


async def spell(answer: bytes | None) -> bytes:
    return b"refused" if answer is None else answer


async def many_passes() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


async def test_answers_are_spelled_when_the_channel_is_free() -> None:
    pipe, spelled = Pipe(), list[int]()
    outbox = Outbox(pipe.send)

    async def spell_later(number: int | None) -> bytes:
        assert number is not None
        spelled.append(number)
        return b"%d" % number

    sending = [asyncio.ensure_future(outbox.send(n, 10 * MEGABYTE, spell_later)) for n in range(5)]
    await many_passes()
    assert spelled == [0]
    pipe.read.set()
    await soon(asyncio.gather(*sending))
    assert pipe.messages == [b"0", b"1", b"2", b"3", b"4"]


async def test_no_handler_begins_while_much_waits() -> None:
    pipe = Pipe()
    outbox = Outbox(pipe.send)
    await soon(outbox.room())
    sending = asyncio.ensure_future(outbox.send(b"x", MOST // 4, spell))
    await many_passes()
    room = asyncio.ensure_future(outbox.room())
    await many_passes()
    assert not room.done()
    pipe.read.set()
    await soon(asyncio.gather(sending, room))


async def test_of_what_waits_some_is_refused_if_it_is_too_much_but_never_one_alone() -> None:
    pipe = Pipe()
    outbox = Outbox(pipe.send)
    first = asyncio.ensure_future(outbox.send(b"alone", 10 * MOST, spell))
    await many_passes()
    pipe.read.set()
    await soon(first)
    pipe.read.clear()
    sending = [asyncio.ensure_future(outbox.send(b"%d" % n, MOST // 4, spell)) for n in range(8)]
    await many_passes()
    pipe.read.set()
    await soon(asyncio.gather(*sending))
    assert pipe.messages[0] == b"alone"
    assert pipe.messages.count(b"refused") == 3


async def test_what_is_cancelled_while_it_waits_counts_no_longer() -> None:
    pipe = Pipe()
    outbox = Outbox(pipe.send)
    sending = [asyncio.ensure_future(outbox.send(b"x", MOST // 2, spell)) for _ in range(2)]
    await many_passes()
    for each in sending:
        each.cancel()
    await asyncio.wait(sending)
    await soon(outbox.room())


@pytest.mark.parametrize("era", ["2026", "2025"])
async def test_a_client_that_reads_nothing_has_few_results_made_and_all_when_it_reads(era: str) -> None:
    server, begun = Server("pipe", version="1"), [0]

    @server.tool
    async def much() -> str:
        begun[0] += 1
        await asyncio.sleep(0)
        return "x" * 5 * MEGABYTE

    pipe = Pipe()
    async with server.endpoint.in_use():
        conversation = Conversation(server.endpoint, pipe.send)
        if era == "2025":
            pipe.read.set()
            await soon(conversation.receive(json.dumps(OPENING).encode()))
            pipe.read.clear()
            pipe.messages.clear()
        for number in range(100):
            message: dict[str, Any] = call("much", request_id=number)
            if era == "2025":
                del message["params"]["_meta"]
            await soon(conversation.receive(json.dumps(message).encode()))
        await many_passes()
        assert 0 < begun[0] < 50
        pipe.read.set()
        async with asyncio.timeout(60):
            while len(pipe.messages) < 100:
                await asyncio.sleep(0.01)
        await conversation.close(1.0)
    assert all(len(message) > 5 * MEGABYTE for message in pipe.messages)
