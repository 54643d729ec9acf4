"""Clients that fill the store with what they answer."""

from typing import Any

import pytest

from ekiden import Context, RoundLimits, Server
from ekiden.errors import InternalError
from ekiden.server.sealing.room import Room
from ekiden.stores.memory import MemoryStore
from ekiden.testing import CallFailed, ScriptedClient


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.put = 0

    async def put_journal(self, journal_id: str, data: bytes, *, expires: float) -> None:
        self.put += len(data)
        await super().put_journal(journal_id, data, expires=expires)


@pytest.mark.parametrize("principal", ["alice", None])
async def test_long_answers_take_bounded_room_in_the_store(principal: str | None) -> None:
    store: Any = CountingStore()
    limits = RoundLimits(stored_bytes_per_principal=1_000_000, stored_bytes_without_principal=1_000_000)
    server = Server("shop", store=store, rounds=limits, principal=lambda request: principal)

    @server.tool
    async def order(ctx: Context) -> str:
        await ctx.elicit("What?", str)
        await ctx.elicit("Sure?", bool)
        return "ordered"

    failures = 0
    for _ in range(8):
        client = ScriptedClient(server, {"What?": "a" * 300_000, "Sure?": True})
        try:
            await client.call_tool("order", {})
        except CallFailed:
            failures += 1
    assert failures == 5
    assert store.put < 1_000_000


def test_room_comes_back_with_time_and_is_that_of_one_principal() -> None:
    room = Room(10, None)
    room.take("alice", 6, now=0.0, expires=100.0)
    room.take("alice", 4, now=50.0, expires=150.0)
    room.take("bob", 10, now=50.0, expires=150.0)
    room.take("", 1000, now=50.0, expires=150.0)
    with pytest.raises(InternalError, match="Too much is kept"):
        room.take("alice", 1, now=99.0, expires=199.0)
    room.take("alice", 6, now=100.0, expires=200.0)
    with pytest.raises(InternalError, match="10 bytes of 10"):
        room.take("alice", 1, now=101.0, expires=201.0)
