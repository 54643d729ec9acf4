"""What stories must not hold: values that nobody wants kept, and more than their bounds allow."""

import contextlib
from typing import Any

from mcp_types import ElicitResult

from ekiden import Client, Context, Recording, Retry, Server
from ekiden.stories.store import CallQuery
from ekiden.testing import ScriptedClient
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
            await pushed.call_tool("pay", {"card": "4711"})
        await ScriptedClient(server, {"Really with 4711?": True}).call_tool("pay", {"card": "4711"})
        stories = await stories_of(server)
        rows = await stories.listing(CallQuery())
        assert len(rows) == 2
        for row in rows:
            events = await events_of(stories, row.id)
            assert {"began", "done", "retried", "log", "progress"} <= {event.kind for event in events}
            assert [event for event in events if "4711" in repr(event)] == []
            assert b"4711" not in row.facts
