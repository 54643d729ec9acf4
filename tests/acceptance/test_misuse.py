"""What authors get wrong is told to them, and what only looks wrong works: with clients of either era."""

import asyncio
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from ekiden import Client as AnyClient
from ekiden import Context, Server, UsageError
from tests.acceptance.driving import Client, accept, new_server, served, text

BOTH = pytest.mark.parametrize("mode", ["auto", "legacy"])


async def outcome(server: Server, mode: Any, name: str = "tool") -> tuple[bool, str]:
    """Whether a call failed, and its text, with a client of either era that accepts `True` for everything."""

    async def elicit(_params: Any) -> Any:
        return accept(True)

    async with served(server) as url, AnyClient(url, mode=mode, elicit=elicit) as client:
        result = await client.call_tool(name)
        return bool(result.is_error), str(result.content[0].text)  # type: ignore[union-attr]


@pytest.mark.parametrize("key", ["", "a\0b", "k" * 2000, 7, "\ud800"])
async def test_a_key_that_cannot_be_carried_is_refused(key: Any) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        with pytest.raises(UsageError, match="key= must be a string of 1 to"):
            await ctx.elicit("sure?", bool, key=key)
        return "told"

    assert text(await Client(server).ask("tool")) == "told"


@BOTH
async def test_who_asks_in_the_body_cannot_read_the_answers_by_hand(mode: str) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.elicit("sure?", bool)
        return str(ctx.input_responses)

    failed, told = await outcome(server, mode)
    assert failed
    assert "True" not in told


@BOTH
async def test_a_step_may_wait_and_draw_as_any_code_does(mode: str) -> None:
    server = new_server()
    drawn: list[Any] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        async def work() -> str:
            await ctx.sleep(0.001)
            drawn.append((ctx.uuid(), ctx.now(), ctx.random()))
            return str(drawn[-1][0])

        first = await ctx.step(work)
        await ctx.elicit("sure?", bool)
        return first

    failed, told = await outcome(server, mode)
    assert not failed
    assert [told] == [str(each[0]) for each in drawn], "drawn once, though the handler ran twice"


async def test_a_step_may_call_a_server_whose_handlers_ask() -> None:
    inner, outer = new_server("inner"), new_server("outer")

    @inner.tool
    async def tool(ctx: Context) -> str:
        return str((await ctx.elicit("inner?", bool)).data)

    @outer.tool(name="tool")
    async def other(ctx: Context) -> str:
        async def call() -> str:
            failed, told = await outcome(inner, "legacy")
            assert not failed
            return told

        return await ctx.step(call)

    assert await outcome(outer, "legacy") == (False, "True")


async def test_an_older_client_that_never_answers_fittingly_is_not_asked_for_ever() -> None:
    server = new_server()

    def refuse(value: bool) -> bool:
        raise ValueError("a rule that the form does not show, so that no client can keep to it")

    @server.tool
    async def tool(ctx: Context) -> str:
        return str(await ctx.elicit("sure?", Annotated[bool, AfterValidator(refuse)]))

    failed, told = await outcome(server, "legacy")
    assert failed
    assert "No fitting answer to elicitation/create came in" in told


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_only_a_tool_goes_to_the_background(mode: Any) -> None:
    server = new_server()
    told: list[str] = []

    @server.prompt
    async def motto(ctx: Context) -> str:
        try:
            await ctx.background()
        except UsageError as error:
            told.append(str(error))
        return "on time"

    async with served(server) as url, AnyClient(url, mode=mode) as client:
        await asyncio.wait_for(client.get_prompt("motto"), 15)
    assert len(told) == 1
