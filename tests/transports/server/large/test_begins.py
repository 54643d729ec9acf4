"""Handlers begin a few at a time, and none while large results wait."""

import asyncio
import threading
import weakref
from typing import Any

import pytest

from ekiden import Server
from ekiden.transports.server.large.begins import FEW, BeginTurns
from tests.passes import Passes
from tests.serving import call, post, served, soon

MEGABYTE = 1024 * 1024


class Handler:
    """What is known of a handler."""

    def __init__(self, returns_much: bool) -> None:
        self.returns_much = returns_much


MUCH, LITTLE = Handler(True), Handler(False)


async def passes_of(begins: BeginTurns, clients: list[str]) -> list[tuple[int, str]]:
    """In which pass of the loop each began, in the order in which they did."""
    passes, began = Passes(), list[tuple[int, str]]()

    async def begin(client: str) -> None:
        await begins.turn(client, LITTLE)
        begins.left -= 1
        began.append((passes.count, client))

    with passes.counted():
        await soon(asyncio.gather(*map(begin, clients)))
    return began


async def test_so_many_handlers_begin_in_one_pass_of_the_loop() -> None:
    began = await passes_of(BeginTurns(), ["client"] * 100)
    assert [[count for count, _ in began].count(each) for each in sorted({count for count, _ in began})] == [
        *(32, 32, 32, 4)
    ]


async def test_few_handlers_never_wait() -> None:
    begins = BeginTurns()
    for _ in range(10):
        for _ in range(FEW):
            assert begins.left > FEW or not begins.full()
            begins.left -= 1
        await asyncio.sleep(0)


async def test_a_client_with_many_calls_holds_up_nobody_else() -> None:
    began = await passes_of(BeginTurns(), ["greedy"] * 200 + ["modest"])
    assert [client for _, client in began].index("modest") < 40


async def test_while_so_much_is_held_none_begins_and_afterwards_first_one() -> None:
    begins, began = BeginTurns(), list[int]()
    begins.hold_up(True)

    async def begin(number: int) -> None:
        await begins.turn("client", MUCH)
        began.append(number)
        if number == 0:
            begins.hold_up(True)

    waiting = [asyncio.ensure_future(begin(number)) for number in range(50)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not began
    await soon(begins.turn("client", LITTLE))  # It is not known to return much.
    begins.hold_up(False)
    for _ in range(20):
        await asyncio.sleep(0)
    assert began == [0]
    begins.hold_up(False)
    await soon(asyncio.gather(*waiting))
    assert began == list(range(50))


async def test_what_is_cancelled_takes_no_turn() -> None:
    begins = BeginTurns()
    begins.hold_up(True)
    gone = [asyncio.ensure_future(begins.turn("client", MUCH)) for _ in range(100)]
    await asyncio.sleep(0)
    for each in gone:
        each.cancel()
    await asyncio.wait(gone)
    begins.hold_up(False)
    passes = Passes()
    with passes.counted():
        await soon(begins.turn("client", MUCH))
        assert passes.count < 5


def test_nobody_waits_for_an_event_loop_that_has_stopped() -> None:
    begins = BeginTurns()

    async def hold_up() -> None:
        begins.hold_up(True)

    asyncio.run(hold_up())

    async def begin() -> None:
        for _ in range(100):
            await begins.turn("client", MUCH)
            begins.left -= 1

    asyncio.run(asyncio.wait_for(begin(), 20))


# Over HTTP


class Rows(list[Any]):
    """A value of which it can be seen whether it is still there."""


class Alive:
    """How many values were there at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = 0

    def rows(self) -> Rows:
        rows = Rows(["x" * 1000 for _ in range(1000)])
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        weakref.finalize(rows, self._gone)
        return rows

    def _gone(self) -> None:
        with self._lock:
            self.now -= 1


@pytest.mark.parametrize("how", ["at once", "later", "in a thread"])
async def test_of_a_burst_of_calls_few_values_are_there_at_once(how: str) -> None:
    server, alive = Server("burst", version="1"), Alive()

    if how == "in a thread":

        @server.tool(name="much")
        def plain() -> list[Any]:
            return alive.rows()

    else:

        @server.tool(name="much")
        async def much() -> list[Any]:
            if how == "later":
                await asyncio.sleep(0)
            return alive.rows()

    async with served(server) as base:
        server.endpoint.large.limit(100 * MEGABYTE)
        responses = await soon(
            asyncio.gather(*(post(base, call("much", request_id=number)) for number in range(150)))
        )
    assert all(len(response.content) > MEGABYTE for response in responses)
    assert alive.most <= 80
