"""Clients that fill the store with rounds that are remembered."""

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from ekiden import Context, RoundLimits, Server
from ekiden.rounds.call_state import CallState
from ekiden.rounds.journal import Entry
from ekiden.rounds.outcome import Complete, Failed
from ekiden.server.rounds.owning.claim import RoundClaim
from ekiden.server.rounds.owning.once import Once
from ekiden.server.sealing.room import Room
from ekiden.signals import Ended
from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing import CallFailed, Round
from tests.acceptance.driving import Client, accept, messages, new_server, only, text

LIMITS = RoundLimits(stored_bytes_per_principal=1_000_000, stored_bytes_without_principal=1_000_000)


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Shop:
    """A server with a tool that asks, and then runs a step with a large value."""

    def __init__(self, store: SQLiteStore, once: Any = "auto", principal: str | None = "alice") -> None:
        self.clock, self.loaded = Clock(), 0
        self.who = principal
        self.server = new_server(
            store=store, rounds=LIMITS, clock=self.clock, principal=lambda request: self.who
        )

        @self.server.tool(once=once)
        async def tool(ctx: Context) -> str:
            if (await ctx.elicit("Load?", bool)).data:
                await ctx.step(self._load, key="load")
            return "loaded"

    async def _load(self) -> str:
        self.loaded += 1
        return "v" * 300_000

    async def asked(self) -> Round:
        return await Client(self.server).ask("tool")

    async def say(self, asked: Round, answer: bool = True) -> str:
        return text(await Client(self.server).retry(asked, {only(asked): accept(answer)}))

    async def fill(self, rounds: int = 4) -> None:
        for _ in range(rounds):
            assert await self.say(await self.asked()) == "loaded"


def stored(path: Path) -> list[tuple[float, int]]:
    """When each round expires, and the bytes of its steps."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT expires, coalesce((SELECT sum(length(entry)) FROM round_steps WHERE round_id = id), 0)"
            " FROM rounds"
        ).fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rounds.db"


@pytest.fixture
def store(path: Path) -> SQLiteStore:
    return SQLiteStore(path)


@pytest.mark.parametrize("principal", ["alice", None])
async def test_rounds_with_large_steps_take_bounded_room_in_the_store(
    principal: str | None, path: Path, store: SQLiteStore
) -> None:
    shop = Shop(store, principal=principal)
    await shop.fill()
    for _ in range(4):
        asked = await shop.asked()
        with pytest.raises(CallFailed, match="Too much is kept for your calls") as refused:
            await shop.say(asked)
        assert refused.value.code == -32603
    assert shop.loaded == 4
    kept = stored(path)
    assert len(kept) == 4
    assert sum(size for _, size in kept) < 1_300_000
    await store.close()


async def test_a_full_room_is_full_for_its_principal_and_for_steps_only(store: SQLiteStore) -> None:
    shop = Shop(store)
    await shop.fill()
    assert await shop.say(await shop.asked(), answer=False) == "loaded"
    shop.who = "bob"
    assert await shop.say(await shop.asked()) == "loaded"
    assert shop.loaded == 5
    await store.close()


@pytest.mark.parametrize("once", ["auto", True])
async def test_a_round_that_was_run_before_is_answered_without_room(once: Any, store: SQLiteStore) -> None:
    shop = Shop(store, once=once)
    first = await shop.asked()
    await shop.say(first)
    await shop.fill(3)
    assert await shop.say(first) == "loaded"
    assert shop.loaded == 4
    await store.close()


async def test_a_refused_round_can_be_sent_again_when_there_is_room(store: SQLiteStore) -> None:
    shop = Shop(store)
    await shop.fill()
    shop.clock.now += 599
    asked = await shop.asked()
    with pytest.raises(CallFailed, match="Too much is kept"):
        await shop.say(asked)
    shop.clock.now += 100
    assert await shop.say(asked) == "loaded"
    assert shop.loaded == 5
    await store.close()


async def test_rounds_without_values_take_room_too(path: Path, store: SQLiteStore) -> None:
    few = RoundLimits(stored_bytes_per_principal=3_000, stored_bytes_without_principal=3_000)
    server = new_server(store=store, rounds=few)

    @server.tool(once=True)
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        return "done"

    refused = 0
    for _ in range(20):
        asked = await Client(server).ask("tool")
        try:
            await Client(server).retry(asked, {only(asked): accept(True)})
        except CallFailed:
            refused += 1
    assert len(stored(path)) == 20 - refused < 13
    await store.close()


async def test_a_round_that_has_run_a_step_goes_on_without_room(store: SQLiteStore) -> None:
    """Its process has died or its client has left; what it did must not be forgotten."""
    room = Room(1_000, None)
    once = Once(store, time.time, lease=15.0, keep=100.0, room=room)
    state = CallState(0.0, 0.0, 0.0, "", "tools/call", "pay", b"{}", "alice", "flow", 1, {}, (), {})
    begun, again, new = (RoundClaim(once, f"flow.{n}", "token", {}, state) for n in (1, 1, 2))
    entry = Entry("step", "", "v" * 2_000)
    await begun.commit({"s:load": entry})
    await begun.release()
    with pytest.raises(Ended) as refused:
        await new.own()
    assert isinstance(refused.value.outcome, Failed)
    assert await again.recall() == {"s:load": entry}
    assert await again.finish(Complete({})) == Complete({})
    await store.close()


# For how long


async def test_a_round_is_remembered_as_long_as_its_state_can_be_used(path: Path, store: SQLiteStore) -> None:
    shop = Shop(store)
    asked = await shop.asked()
    shop.clock.now += 300
    await shop.say(asked)
    shop.clock.now += 299
    await store.purge(now=shop.clock.now)
    assert await shop.say(asked) == "loaded"
    assert shop.loaded == 1
    shop.clock.now += 62
    await store.purge(now=shop.clock.now)
    assert stored(path) == []
    await store.close()


async def test_a_late_state_for_the_same_round_is_still_refused(store: SQLiteStore) -> None:
    """The round before had no step: sent again, it gives a state that can be used for longer."""
    clock, paid = Clock(), list[str]()
    server = new_server(store=store, clock=clock)

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.elicit("How much?", int)
        await ctx.elicit("Sure?", bool)
        await ctx.step(lambda: paid.append("paid"), key="pay")
        return "paid"

    client = Client(server)
    first = await client.ask("tool")
    sure = await client.retry(first, {only(first): accept(5)})
    assert text(await client.retry(sure, {only(sure): accept(True)})) == "paid"
    clock.now += 599
    late = await client.retry(first, {only(first): accept(500)})
    assert messages(late) == ["Sure?"]
    clock.now += 599
    await store.purge(now=clock.now)
    error = await client.refused(inputResponses={only(late): accept(True)}, requestState=late.state)
    assert error.code == -32602
    assert "run before" in error.message
    assert paid == ["paid"]
    await store.close()


def test_room_that_expires_in_any_order_comes_back_in_the_order_of_time() -> None:
    room = Room(10, None)
    room.add("alice", 4, expires=300.0)
    room.add("alice", 3, expires=100.0)
    room.add("alice", 3, expires=200.0)
    for now, size in ((100.0, 3), (200.0, 6), (300.0, 10)):
        room.check("alice", size, now=now)


def test_a_million_rounds_take_little_memory_to_count() -> None:
    room = Room(10**12, None)
    for number in range(100_000):
        room.add("alice", 1, expires=number / 100)
    assert max(len(kept.parts) for kept in room._kept.values()) < 110


def test_servers_without_a_store_have_no_such_limit() -> None:
    assert Server("plain")._rounds.once.room is None
