"""What handlers leave behind, swallow or break, when their client is of 2025."""

import asyncio
import logging
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden import Context, InputRequired, Server
from tests.serving import served, soon

from .handlers import KEY, Name, make_server, question
from .old_client import accepted, call, events, hello, notification, old_client, request, text

DRAFT = "2026-06-XX"


async def test_what_a_handler_tells_after_its_end_is_not_heard() -> None:
    server, told = Server("late", keys=[KEY]), asyncio.Event()
    failures: list[Exception] = []
    left: list[asyncio.Task[None]] = []

    async def later(ctx: Context) -> None:
        await asyncio.sleep(0.05)
        await ctx.progress(2)
        try:
            await ctx.elicit("Still there?", bool)
        except Exception as error:
            failures.append(error)
        told.set()

    @server.tool
    async def leave(ctx: Context) -> str:
        """Leave something running."""
        await ctx.progress(1)
        left.append(asyncio.create_task(later(ctx)))
        return "left"

    async with served(server) as base, old_client(base) as client:
        said = await client.talk(call("leave", meta={"progressToken": 1}))
        await soon(told.wait())
        assert [message.get("method") for message in said] == ["notifications/progress", None]
        assert "ended" in str(failures[0])


async def test_a_handler_that_swallows_its_cancellation_gets_no_response_out() -> None:
    server, began = Server("deaf", keys=[KEY]), asyncio.Event()

    @server.tool
    async def deaf() -> str:
        """Do not want to be cancelled."""
        began.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "not cancelled"
        return "never"

    async with served(server) as base, old_client(base) as client:
        calling = asyncio.create_task(client.talk(call("deaf", id=4)))
        await soon(began.wait())
        await client.send(notification("notifications/cancelled", requestId=4))
        assert await soon(calling) == []


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("secret"), asyncio.CancelledError()])
async def test_whatever_a_handler_raises_the_server_goes_on(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("breaking", keys=[KEY])

    @server.tool
    async def broken(ctx: Context) -> str:
        """Break."""
        await ctx.checkpoint()
        raise error

    with caplog.at_level(logging.CRITICAL, "ekiden.server"):
        async with served(server) as base, old_client(base) as client:
            answered = await client.answered(call("broken"))
            assert answered["result"]["isError"] is True
            assert "secret" not in text(answered)
            assert (await client.ask("ping"))["result"] == {}


async def test_a_prompt_that_breaks_is_an_internal_error() -> None:
    server = Server("breaking", keys=[KEY])

    @server.prompt
    async def broken(ctx: Context) -> str:
        """Break."""
        raise ValueError("secret")

    async with served(server, quiet=False) as base, old_client(base) as client:
        answered = await client.ask("prompts/get", {"name": "broken"})
        assert answered["error"] == {"code": -32603, "message": "Internal error"}


async def test_both_ways_of_asking_in_one_call_are_refused() -> None:
    server = Server("mixed", keys=[KEY])

    @server.tool
    async def mixed(ctx: Context) -> InputRequired | str:
        """Mix both ways."""
        await ctx.elicit("One way", Name)
        return InputRequired({"other": question("the other way")})

    async with served(server, quiet=False) as base, old_client(base) as client:
        answered = await client.answered(call("mixed"), lambda m: accepted(m["id"], name="Ann"))
        assert "error" in answered or answered["result"]["isError"] is True


async def test_what_is_to_be_done_on_completion_waits_for_a_handler_that_asks_by_itself() -> None:
    server = Server("manual", keys=[KEY])
    told: list[str] = []

    @server.tool
    async def manual(ctx: Context) -> InputRequired | str:
        """Ask by hand."""
        ctx.on_complete(told.append, "completed")
        if "name" not in ctx.input_responses:
            return InputRequired({"name": question("Your name?")})
        return "done"

    async with served(server) as base, old_client(base) as client:
        answered = await client.answered(call("manual"), lambda m: accepted(m["id"], name="Ann"))
        assert text(answered) == "done"
    assert told == ["completed"]


async def test_a_step_cannot_ask() -> None:
    server = Server("steps", keys=[KEY])

    @server.tool
    async def nested(ctx: Context) -> str:
        """Ask in a step."""

        async def inside() -> str:
            return (await ctx.elicit("Inside?", Name)).action

        return await ctx.step(inside)

    async with served(server, quiet=False) as base, old_client(base) as client:
        answered = await client.answered(call("nested"))
        assert answered["result"]["isError"] is True


async def test_the_key_of_a_step_is_its_own() -> None:
    server = Server("steps", keys=[KEY])

    class Keys(BaseModel):
        keys: list[str]

    @server.tool
    async def keyed(ctx: Context) -> Keys:
        """Tell the keys of three steps."""

        async def key() -> str:
            return ctx.step_key

        return Keys(keys=[await ctx.step(key), await ctx.step(key), await ctx.step(key, key="named")])

    async with served(server) as base, old_client(base) as client:
        found = [
            key
            for _ in range(2)
            for key in (await client.answered(call("keyed")))["result"]["structuredContent"]["keys"]
        ]
        assert len(set(found)) == 6


async def test_a_handler_that_is_parked_for_the_draft_ends_with_its_session() -> None:
    server = Server("parking", keys=[KEY], experimental_protocol_version=DRAFT)
    ended = asyncio.Event()

    @server.tool(resume="parked")
    async def parked(ctx: Context) -> str:
        """Wait in memory."""
        try:
            return (await ctx.elicit("Wait", Name)).action
        finally:
            ended.set()

    async with served(server) as base, old_client(base, version=DRAFT) as client:
        (first,) = await client.talk(call("parked"))
        assert first["result"]["result_type"] == "incomplete"
        retry = call("parked", id=2)
        ((key, _),) = first["result"]["inputRequests"].items()
        retry["params"] |= {
            "requestState": first["result"]["requestState"],
            "inputResponses": {key: {"action": "decline"}},
        }
        assert not ended.is_set()
        await client.end()
        await soon(ended.wait())
        assert (await client.send(retry)).status_code == 404


async def test_a_channel_serves_many_requests_that_wait_for_answers() -> None:
    async with make_server().connect() as channel:
        await channel.send(hello())
        await channel.receive()
        await channel.send(notification("notifications/initialized"))
        for number in range(1, 1100):
            await channel.send(call("ask", id=number))
        refused = 0
        answered = 0
        async with asyncio.timeout(30):
            while answered + refused < 1099:
                message = await channel.receive()
                if "method" in message:
                    await channel.send(accepted(message["id"], name="Ann"))
                elif "error" in message:
                    refused += 1
                else:
                    answered += 1
        assert refused <= 76
        assert answered >= 1024 - 1


async def test_a_stopped_server_ends_what_waits_for_an_answer() -> None:
    stopped = asyncio.Event()
    server = Server("stopping", keys=[KEY])

    @server.tool
    async def stoppable(ctx: Context) -> str:
        """Wait for an answer."""
        try:
            return (await ctx.elicit("Hm?", Name)).action
        finally:
            stopped.set()

    async def hold(client: Any) -> None:
        async with client.posting(call("stoppable")) as response:
            async for _ in events(response):
                pass

    async with served(server, quiet=False, grace=1) as base, old_client(base) as client:
        holding = asyncio.create_task(hold(client))
        async with asyncio.timeout(30):
            while not (await client.ask("ping")) or not holding:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
    await soon(stopped.wait())
    await asyncio.gather(holding, return_exceptions=True)


async def test_a_principal_that_refuses_is_a_400() -> None:
    from ekiden import InvalidParams

    def who(request: Any) -> str:
        if b"authorization" not in request.headers:
            raise InvalidParams("Who are you?")
        return "Ann"

    async with served(make_server(principal=who)) as base:
        from .old_client import raw_client

        async with raw_client(base) as client:
            refused = await client.send(hello())
            assert "Who are you?" in refused.text
            client.more = {"authorization": "x"}
            await client.open()
            client.more = {}
            assert (await client.send(request("ping"))).status_code == 400
