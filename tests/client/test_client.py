"""The client against our own server: in memory, over HTTP and over stdio."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult
from pydantic import BaseModel

from ekiden import (
    CallTimeout,
    CannotAnswer,
    Client,
    Context,
    InputRequired,
    InvalidResult,
    PendingCall,
    Server,
    ServerError,
    TooManyRounds,
)
from ekiden.transports.client.http import HttpClient
from tests import warm
from tests.serving import served

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


class Sum(BaseModel):
    total: int


def make_server() -> Server:
    server = Server("under test", version="1", keys=[b"a key of at least thirty-two bytes!"])

    @server.tool
    async def add(a: int, b: int) -> Sum:
        """Add."""
        return Sum(total=a + b)

    @server.tool
    async def ask(times: int, ctx: Context) -> str:
        """Ask several times."""
        for number in range(times):
            await ctx.elicit(f"Question {number}?", bool)
        return "done"

    @server.tool
    async def count(ctx: Context) -> str:
        """Report progress."""
        for number in range(3):
            await ctx.progress(number, 3, "counting")
        return "counted"

    @server.tool
    async def busy(ctx: Context) -> InputRequired | str:
        """Be called twice before there is an answer."""
        if ctx.request_state is None:
            return InputRequired(request_state="later")
        return "now"

    @server.tool
    async def hang() -> str:
        """Never end."""
        await asyncio.sleep(3600)
        return "never"

    @server.resource("a://b")
    async def resource() -> str:
        """A resource."""
        return "content"

    return server


async def agree(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": True})


def text(result: Any) -> str:
    assert isinstance(result, CallToolResult)
    return "".join(block.text for block in result.content if block.type == "text")


@pytest.mark.parametrize("way", ["memory", "http", "stdio"])
async def test_a_server_is_found_modern_and_answers_over_every_transport(way: str) -> None:
    async with served(make_server()) as base:
        targets: dict[str, Any] = {
            "memory": make_server(),
            "http": f"{base}/mcp",
            "stdio": warm.command(str(EXAMPLES / "weather.py"), "--stdio"),
        }
        async with asyncio.timeout(30), Client(targets[way]) as client:
            assert client.session.era == "modern"
            names = {tool.name for tool in await client.list_tools()}
            assert names & {"add", "forecast"}


async def test_a_call_that_asks_is_driven_to_its_end() -> None:
    async with served(make_server()) as base, Client(f"{base}/mcp", elicit=agree) as client:
        assert text(await client.call_tool("ask", {"times": 3})) == "done"


async def test_structured_content_comes_as_the_type_that_was_asked_for() -> None:
    async with Client(make_server()) as client:
        assert await client.call_tool("add", {"a": 1, "b": 2}, result_type=Sum) == Sum(total=3)
        with pytest.raises(InvalidResult, match="failed"):
            await client.call_tool("add", {"a": "one", "b": 2}, result_type=Sum)


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_a_list_comes_as_the_type_that_was_asked_for_from_servers_of_either_era(mode: Any) -> None:
    server = Server("lists")

    @server.tool
    async def numbers() -> list[int]:
        return [1, 2]

    async with served(server) as base, Client(f"{base}/mcp", mode=mode) as client:
        await client.list_tools()
        assert await client.call_tool("numbers", result_type=list[int]) == [1, 2]
        with pytest.raises(InvalidResult):
            await client.call_tool("numbers", result_type=list[bytes])


async def test_progress_is_told_as_it_comes() -> None:
    seen: list[tuple[float, float | None, str | None]] = []
    async with served(make_server()) as base, Client(f"{base}/mcp") as client:
        await client.call_tool("count", progress=lambda *step: seen.append(step))
    assert seen == [(0, 3, "counting"), (1, 3, "counting"), (2, 3, "counting")]


async def test_a_pending_call_is_finished_by_another_client() -> None:
    server = make_server()
    async with Client(server, elicit=agree) as client:
        pending = await client.start_tool("ask", {"times": 1})
        assert isinstance(pending, PendingCall)
        stored = pending.to_json()
    async with Client(server, elicit=agree) as another:
        assert text(await another.resume(PendingCall.from_json(stored))) == "done"


async def test_what_no_callback_answers_fails_before_anybody_is_asked() -> None:
    asked: list[str] = []

    async def note(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"value": True})

    server = Server("s", keys=[b"a key of at least thirty-two bytes!"])

    @server.tool
    async def both(ctx: Context) -> InputRequired:
        """Ask for what was never declared."""
        raise InputRequired({"form": {"method": "elicitation/create", "params": _FORM}})

    async with Client(server) as silent:
        with pytest.raises(ServerError) as caught:
            await silent.call_tool("both")
    assert caught.value.code == -32021
    client = Client(server, elicit=note)
    with pytest.raises(CannotAnswer, match="roots"):
        await client._answerer.answer_all(
            {"form": {"method": "elicitation/create", "params": _FORM}, "roots": {"method": "roots/list"}}
        )
    assert asked == []


_FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}


async def test_rounds_and_time_are_capped() -> None:
    async with Client(make_server(), elicit=agree, max_rounds=2) as client:
        with pytest.raises(TooManyRounds):
            await client.call_tool("ask", {"times": 3})
        assert text(await client.call_tool("ask", {"times": 3}, max_rounds=3)) == "done"
        with pytest.raises(CallTimeout):
            await client.call_tool("hang", timeout=0.05)


async def test_a_round_with_state_only_is_called_again() -> None:
    async with Client(make_server()) as client:
        assert text(await client.call_tool("busy")) == "now"


async def test_connections_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[HttpClient] = []
    forget = HttpClient.forget
    monkeypatch.setattr(HttpClient, "forget", lambda self, gone: (opened.append(self), forget(self, gone)))
    async with served(make_server()) as base, Client(f"{base}/mcp") as client:
        for number in range(5):
            await client.call_tool("add", {"a": number, "b": 1})
        assert opened == []


async def test_a_hundred_calls_at_once_all_come_back() -> None:
    async with served(make_server()) as base, Client(f"{base}/mcp") as client:
        calls = [client.call_tool("add", {"a": n, "b": 1}, result_type=Sum) for n in range(100)]
        assert [answer.total for answer in await asyncio.gather(*calls)] == [n + 1 for n in range(100)]


async def test_a_resource_is_read_and_an_unknown_one_is_an_error() -> None:
    async with Client(make_server()) as client:
        result = await client.read_resource("a://b")
        assert getattr(result.contents[0], "text", None) == "content"
        with pytest.raises(ServerError) as caught:
            await client.read_resource("a://c")
        assert caught.value.data == {"uri": "a://c"}
