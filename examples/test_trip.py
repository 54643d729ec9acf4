"""Tests of tools that ask: the code of "how to test"."""

import pytest
from trip import server

from ekiden import Context, Server
from ekiden.testing import DECLINE, Replicas, ScriptedClient, WrongAnswer, check_replay

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


async def test_an_answer_that_does_not_fit_is_named_at_once() -> None:
    client = ScriptedClient(server, {"what do you need?": {"seats": 9, "email": "aiko@example.com"}})
    with pytest.raises(WrongAnswer, match="seats: 9 is greater than the maximum of 4"):
        await client.call_tool("book", {"city": "Hakone"})


async def test_a_wrong_answer_is_asked_again() -> None:
    wrong = {"action": "accept", "content": {"seats": 9, "email": "aiko@example.com"}}
    answers = iter([wrong, DECLINE])
    client = ScriptedClient(server, lambda key, request: next(answers))
    result = await client.call_tool("book", {"city": "Hakone"})
    assert result["content"][0]["text"] == "Nothing was booked."
    assert len(client.rounds) == 3


def make_bakery() -> Server:
    made = Server("bakery", keys=[b"the keys of a test have 32 bytes"], store="memory:")

    @made.tool
    async def bake(ctx: Context) -> str:
        """Bake while somebody waits."""
        await ctx.progress(1, 2, "kneaded")
        await ctx.log("info", "the oven is hot")
        await ctx.progress(2, 2, "baked")
        return "a loaf"

    @made.tool(task="required")
    async def bake_later(ctx: Context) -> str:
        """Bake as a task."""
        salt = await ctx.elicit("With salt?", bool)
        return "a loaf with salt" if salt.action == "accept" and salt.data else "a loaf"

    return made


async def test_progress_and_log_are_recorded() -> None:
    client = ScriptedClient(make_bakery(), progress=True, log="info")
    await client.call_tool("bake")
    assert client.progress == [(1, 2, "kneaded"), (2, 2, "baked")]
    assert client.log == [("info", "the oven is hot", None)]


async def test_a_task_is_followed_and_answered() -> None:
    client = ScriptedClient(make_bakery(), {"With salt?": True}, tasks=True)
    result = await client.call_tool("bake_later")
    assert result["content"][0]["text"] == "a loaf with salt"
    assert client.statuses[-1]["status"] == "completed"


async def test_every_round_may_be_served_by_another_worker() -> None:
    replicas = Replicas(make_server, count=3)
    result = await replicas.client({"Sure?": True, "Really?": True}).call_tool("ask_twice")
    assert result["content"][0]["text"] == "done"
    assert replicas.served == [0, 1, 2]


async def test_the_handler_replays_as_it_ran() -> None:
    await check_replay(make_server, "ask_twice", {}, {"Sure?": True, "Really?": True})
