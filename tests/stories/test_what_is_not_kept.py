"""What stories must not hold: values that nobody wants kept, and more than their bounds allow."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from mcp_types import ElicitResult

from ekiden import Client, Context, Recording, Retry, Server, StoreUnavailable
from ekiden.stores.memory.stories import MemoryStories
from ekiden.stories import recorder as story_recorder
from ekiden.stories.events import CallFacts, CallRow, Event, encode_facts
from ekiden.stories.recorder import Recorder
from ekiden.stories.store import CallQuery, Told
from ekiden.testing import ScriptedClient
from tests.pages.people.calling import Caller
from tests.stories.telling import events_of, stories_of


def charge(card: str) -> str:
    return f"charged {card}"


def refuse(card: str) -> str:
    raise ValueError(f"no money on {card}")


async def test_without_values_no_words_have_them_either() -> None:
    server = Server("shop", keys=[bytes(32)], record=Recording(values=False))

    @server.tool
    async def pay(card: str, ctx: Context) -> str:
        await ctx.progress(1, 2, f"paying with {card}")
        await ctx.info(f"paying with {card}")
        await ctx.step(charge, card)
        with contextlib.suppress(ValueError):
            await ctx.step(refuse, card, retry=Retry(attempts=2, seconds=0.01))
        answer = await ctx.elicit(f"Really with {card}?", bool)
        return f"{card} {answer.action}"

    async def decline(_: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async with server.running():
        async with Client(server, mode="legacy", elicit=decline) as pushed:
            await pushed.call_tool("pay", {"card": "card-of-ann"})
        await ScriptedClient(server, {"Really with card-of-ann?": True}).call_tool(
            "pay", {"card": "card-of-ann"}
        )
        stories = await stories_of(server)
        rows = await stories.listing(CallQuery())
        assert len(rows) == 2
        for row in rows:
            events = await events_of(stories, row.id)
            assert {"began", "done", "retried", "log", "progress"} <= {event.kind for event in events}
            assert [event for event in events if "card-of-ann" in repr(event)] == []
            assert b"card-of-ann" not in row.facts


async def test_what_a_client_says_of_itself_is_kept_within_bounds() -> None:
    server = Server("shop", keys=[bytes(32)], record=True)

    @server.tool
    async def ping(ctx: Context) -> str:
        return "pong"

    async with server.running():
        await Caller(server, experimental={"much": "x" * 500_000}).call("ping")
        await Caller(server, sampling={}).call("ping")
        rows = await (await stories_of(server)).listing(CallQuery())
    assert max(len(row.facts) for row in rows) < 20_000
    assert any(b"sampling" in row.facts for row in rows)


async def test_the_words_of_a_client_are_cut() -> None:
    server = Server("shop", keys=[bytes(32)], record=True)

    @server.tool
    async def ping(ctx: Context) -> str:
        return "pong"

    async with server.running(), Client(server, name="n" * 100_000) as client:
        await client.call_tool("ping", {}, meta={"traceparent": "t" * 100_000})
        (row,) = await (await stories_of(server)).listing(CallQuery())
    assert len(row.facts) < 2000


class Away(MemoryStories):
    """Takes nothing until it is back."""

    is_away = True

    async def write(self, told: Sequence[Told]) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        await super().write(told)


async def test_while_the_store_is_away_what_waits_is_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(story_recorder, "_MOST_BYTES", 100_000)
    monkeypatch.setattr(story_recorder, "_AGAIN_SECONDS", 0.01)
    store = Away()
    recorder = Recorder(store, Recording(), "shop")
    facts = encode_facts(CallFacts("x" * 1000))
    for number in range(1000):
        row = CallRow(
            id=f"{number:04}",
            audience="shop",
            method="tools/call",
            target="pay",
            principal="",
            started=recorder.now(),
            updated=recorder.now(),
            state="completed",
            facts=facts,
        )
        recorder.keep(row, Event(0.0, "leg", "a"), Event(0.0, "end", "a", value="v" * 5000))
        if number % 100 == 0:
            await asyncio.sleep(0.02)
    store.is_away = False
    await recorder.flush()
    kept = await store.listing(CallQuery(limit=1000))
    written = sum([len(batch) for row in kept for batch in await store.events(row.id)])
    assert 5 <= len(kept) <= 60
    assert written + sum(len(row.facts) for row in kept) < 110_000
