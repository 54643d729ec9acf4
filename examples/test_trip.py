"""Tests of tools that ask: the code of "how to test"."""

import pytest
from trip import server

from ekiden import Context, Server
from ekiden.testing import DECLINE, Replicas, ScriptedClient, check_replay

pytestmark = pytest.mark.asyncio


def make_server() -> Server:
    made = Server("twice", keys=[b"only the key is in common, 32 bytes"])

    @made.tool
    async def ask_twice(ctx: Context) -> str:
        """Ask twice."""
        await ctx.elicit("Sure?", bool)
        await ctx.elicit("Really?", bool)
        return "done"

    return made


async def test_a_trip_is_booked_once() -> None:
    client = ScriptedClient(server, {"what do you need?": {"seats": 2, "email": "aiko@example.com"}})
    result = await client.call_tool("book", {"city": "Hakone"})
    assert result["content"][0]["text"].startswith("Reserved 2 seats")
    assert len(client.rounds) == 2


async def test_a_user_who_declines_books_nothing() -> None:
    result = await ScriptedClient(server, {"what do you need?": DECLINE}).call_tool("book", {"city": "Nara"})
    assert result["content"][0]["text"] == "Nothing was booked."


async def test_every_round_may_be_served_by_another_worker() -> None:
    replicas = Replicas(make_server, count=3)
    result = await replicas.client({"Sure?": True, "Really?": True}).call_tool("ask_twice")
    assert result["content"][0]["text"] == "done"
    assert replicas.served == [0, 1, 2]


async def test_the_handler_replays_as_it_ran() -> None:
    await check_replay(make_server, "ask_twice", {}, {"Sure?": True, "Really?": True})
