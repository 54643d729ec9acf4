"""Bodies that are whole together are read in turns."""

import asyncio
import itertools
import json
from typing import Any

import pytest

from ekiden import HttpLimits, Server
from ekiden.transports.server.budget import BodyTurns
from tests.eras.old_client import call as old_call
from tests.passes import Passes
from tests.serving import call, headers_for, soon

KILOBYTE = 1024


class Queue:
    """Bodies that wait for their turn, and the order in which they have it."""

    def __init__(self) -> None:
        self.turns = BodyTurns()
        self.passes = Passes()
        self.had: list[tuple[str, int]] = []

    async def read(self, client: str, size: int) -> None:
        if (turn := self.turns.take(client, size)) is not None:
            await turn
        self.had.append((client, self.passes.count))

    async def all(self, *bodies: tuple[str, int]) -> None:
        with self.passes.counted():
            await soon(asyncio.gather(*(self.read(*body) for body in bodies)))


async def test_each_large_one_waits_for_its_turn_and_there_are_passes_in_between() -> None:
    queue = Queue()
    await queue.all(*[("eve", 500 * KILOBYTE)] * 6)
    turns = [passed for _, passed in queue.had]
    assert all(later - earlier >= 8 for earlier, later in itertools.pairwise(turns))


async def test_those_that_are_not_so_large_are_read_some_at_a_time() -> None:
    queue = Queue()
    await queue.all(*[("eve", 32 * KILOBYTE)] * 12)
    together = [len(list(same)) for _, same in itertools.groupby(passed for _, passed in queue.had)]
    assert together == [4, 4, 4]


async def test_many_bodies_of_one_client_do_not_hold_up_that_of_another() -> None:
    queue = Queue()
    await queue.all(*[("eve", 500 * KILOBYTE)] * 10, ("bob", 500 * KILOBYTE))
    assert [client for client, _ in queue.had].index("bob") == 2  # One was read at once, one came before.


async def test_who_was_cancelled_takes_nobodys_turn() -> None:
    queue = Queue()
    with queue.passes.counted():
        reading = [asyncio.ensure_future(queue.read("eve", 500 * KILOBYTE)) for _ in range(10)]
        await asyncio.sleep(0)
        for each in reading[1:-1]:
            each.cancel()
        begun = queue.passes.count
        await soon(reading[-1])
    assert queue.had[-1][1] - begun < 16


async def test_when_all_were_read_the_next_one_does_not_wait() -> None:
    queue = Queue()
    await queue.all(*[("eve", 500 * KILOBYTE)] * 3)
    for _ in range(16):
        await asyncio.sleep(0)
    assert queue.turns.take("eve", KILOBYTE) is None


def test_what_has_waited_in_an_event_loop_that_is_closed_holds_up_nobody() -> None:
    queue = Queue()

    async def leave() -> None:
        for _ in range(3):
            queue.turns.take("eve", 500 * KILOBYTE)

    asyncio.run(leave())
    asyncio.run(queue.read("bob", 500 * KILOBYTE))
    assert [client for client, _ in queue.had] == ["bob"]


# Over HTTP


class Rows:
    """A server with a tool for many values, which notes in which pass of the event loop it was called."""

    def __init__(self) -> None:
        self.server = Server("s", version="1", stateless_2025=True)
        self.application = self.server.asgi()
        self.passes = Passes()
        self.called: list[int] = []

        @self.server.tool
        async def rows(value: list[list[int]]) -> str:
            """Count them."""
            self.called.append(self.passes.count)
            return str(len(value))

    async def ask(self, headers: dict[str, str], body: bytes) -> int:
        """Send a request that is whole at once; its status."""
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": pairs,
            "client": ("10.0.0.1", 1),
        }
        events = asyncio.Queue[dict[str, Any]]()
        events.put_nowait({"type": "http.request", "body": body})
        sent: list[Any] = []

        async def send(event: Any) -> None:
            sent.append(event)

        await self.application(scope, events.get, send)
        status: int = sent[0]["status"]
        return status


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_calls_with_many_values_that_come_together_are_read_in_turns(era: str) -> None:
    made = Rows()
    arguments = {"value": [[1, 2, 3]] * 12_000}
    message = call("rows", arguments)
    headers = {"host": "localhost", **headers_for(message)}
    if era == "2025":
        message, headers["mcp-protocol-version"] = old_call("rows", value=arguments["value"]), "2025-11-25"
    body = json.dumps(message).encode()
    async with made.server.endpoint.in_use():
        with made.passes.counted():
            statuses = await soon(asyncio.gather(*(made.ask(headers, body) for _ in range(5))))
    assert statuses == [200] * 5
    assert all(later - earlier >= 8 for earlier, later in itertools.pairwise(made.called))


async def test_bodies_that_wait_for_their_turn_count() -> None:
    made = Rows()
    made.application = made.server.asgi(limits=HttpLimits(bodies=1024 * KILOBYTE))
    message = call("rows", {"value": [[1]], "more": "x" * 300 * KILOBYTE})
    headers, body = {"host": "localhost", **headers_for(message)}, json.dumps(message).encode()
    async with made.server.endpoint.in_use():
        statuses = await soon(asyncio.gather(*(made.ask(headers, body) for _ in range(8))))
        again = await soon(made.ask(headers, body))
    assert sorted(statuses) == [200] * 3 + [503] * 5
    assert again == 200  # Nothing counts any more.
