"""Our client at servers that are not ours, and at one that is: of both eras, over HTTP and stdio.

Every test runs against every server that can do what it is about; the id of a test says which.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import mcp_types as types
import pytest
import pytest_asyncio
from pydantic import BaseModel

from ekiden import CallTimeout, CannotAnswer, PendingCall, ServerError

from . import matrix
from .foreign import PATIENCE, WAYS, Visit, Way, visiting

pytestmark = pytest.mark.asyncio(loop_scope="module")


def ways(*, without: tuple[str, ...] = (), **wanted: str) -> list[Any]:
    """The ways with the wanted properties. All that uses one of them runs in one process of xdist."""
    chosen = [
        way
        for way in WAYS
        if all(getattr(way, name) == value for name, value in wanted.items())
        and not str(way).startswith(without)
    ]
    return [pytest.param(way, id=str(way), marks=pytest.mark.xdist_group(str(way))) for way in chosen]


def at(*, without: tuple[str, ...] = (), **wanted: str) -> pytest.MarkDecorator:
    """Run a test at these servers only."""
    return pytest.mark.parametrize("connected", ways(without=without, **wanted), indirect=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ways())
async def connected(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Visit]:
    way: Way = request.param
    async with visiting(way, tmp_path_factory.mktemp(str(way))) as visit:
        yield visit


@pytest.fixture
def visit(connected: Visit) -> Visit:
    connected.person.asked.clear()
    connected.person.together = None
    connected.person.broken = False
    connected.log.clear()
    return connected


# What is asked


class Case(NamedTuple):
    method: str
    arguments: tuple[Any, ...]
    asked: list[str]
    outcome: str


HAIKU, NAME, ROOTS = "A haiku", "Your name?", "roots"
CASES = {
    "a form": Case("call_tool", ("order", {"item": "tea"}), ["Order tea?"], "tea: 2"),
    "a form declined": Case("call_tool", ("order", {"item": "salt"}), ["Order salt?"], "salt: decline"),
    "a form cancelled": Case("call_tool", ("order", {"item": "soap"}), ["Order soap?"], "soap: cancel"),
    "a page": Case("call_tool", ("visit",), ["Please sign in. https://login.example/start"], "visit: accept"),
    "the model": Case("call_tool", ("poem",), [HAIKU], "old pond"),
    "the roots": Case("call_tool", ("places",), [ROOTS], "file:///a, file:///b"),
    "three kinds": Case(
        "call_tool", ("survey",), [NAME, HAIKU, ROOTS], "Mio | old pond | file:///a, file:///b"
    ),
    "three rounds": Case(
        "call_tool",
        ("journey",),
        ["Which city?", "How many days in Sendai?", "Plan 3 days in Sendai."],
        "Sendai, 3 days: Walk.",
    ),
    "by a prompt": Case(
        "get_prompt",
        ("briefing", {"topic": "trains"}),
        ["Who reads about trains?"],
        "Explain trains to children.",
    ),
    "by a resource": Case("read_resource", ("vault://mio",), ["The password of mio?"], "opened with sesame"),
}


def text_of(result: Any) -> str:
    """The one text in a result of any kind."""
    if isinstance(result, types.CallToolResult):
        assert not result.is_error, result
        (block,) = result.content
    elif isinstance(result, types.GetPromptResult):
        (message,) = result.messages
        block = message.content
    else:
        (block,) = result.contents
    return str(block.text)


@pytest.mark.parametrize("name", CASES)
async def test_what_a_server_asks_is_answered_once_and_the_call_ends(
    visit: Visit, name: str, record_property: Callable[[str, object], None]
) -> None:
    method, arguments, asked, outcome = CASES[name]

    result = await getattr(visit.client, method)(*arguments)

    assert text_of(result) == outcome
    assert sorted(visit.person.asked) == sorted(asked)
    if name == "three rounds":
        assert visit.person.asked == asked
    record_property(matrix.PROPERTY, matrix.plain([matrix.cell_of_server(visit.way, name)]))


@at(without=("mcp-2.3-legacy", "fastmcp-4.1-legacy", "typescript-2.4-legacy"))
async def test_three_kinds_asked_at_once_are_answered_at_the_same_time(visit: Visit) -> None:
    visit.person.together = asyncio.Barrier(3)

    assert text_of(await visit.client.call_tool("survey")) == "Mio | old pond | file:///a, file:///b"


@at(without=("mcp-2.3-legacy", "fastmcp-4.1-legacy", "mcp-1.30", "typescript-1.32"))
async def test_a_server_that_only_wants_to_be_called_again_is(visit: Visit) -> None:
    assert text_of(await visit.client.call_tool("counts")) == "counted to 2"
    assert visit.person.asked == []


async def test_answers_find_their_calls_when_many_run_at_once(visit: Visit) -> None:
    calls = [visit.client.call_tool("order", {"item": f"lot {number}"}) for number in range(20)]

    assert [text_of(result) for result in await asyncio.gather(*calls)] == [
        f"lot {number}: {number}" for number in range(20)
    ]


@at(era="modern")
async def test_a_call_is_carried_to_another_client_between_its_rounds(visit: Visit) -> None:
    pending = await visit.client.start_tool("order", {"item": "tea"})
    assert isinstance(pending, PendingCall)
    (question,) = pending.requests.values()
    stored = pending.to_json()
    if visit.way.transport == "stdio":  # Another process has another key: it is the client that forgot all.
        result = await visit.client.resume(PendingCall.from_json(stored))
    else:
        async with visit.another(elicit=visit.person.elicit) as other:
            result = await other.resume(PendingCall.from_json(stored))

    assert question["params"]["message"] == "Order tea?"
    assert text_of(result) == "tea: 2"


# What goes wrong


async def test_a_question_that_nobody_answers_ends_the_call(visit: Visit) -> None:
    async with visit.another() as silent:
        try:
            told = await outcome_of(silent.call_tool("order", {"item": "tea"}))
        except CannotAnswer as error:
            told = str(error)
        assert "elicit" in told.lower()
        assert await silent.call_tool("add", {"a": 1, "b": 2}, result_type=Total) == Total(total=3)


async def test_a_callback_that_fails_ends_the_call_and_nothing_else(
    visit: Visit, caplog: pytest.LogCaptureFixture
) -> None:
    visit.person.broken = True
    if visit.way.era == "modern":
        with pytest.raises(RuntimeError, match="screen is broken"):
            await visit.client.call_tool("order", {"item": "tea"})
    else:  # The server gets an error for its question, and makes of it what it will.
        told = await outcome_of(visit.client.call_tool("order", {"item": "tea"}))
        assert "The client's callback failed" in told
        assert "screen is broken" in caplog.text
    visit.person.broken = False

    assert text_of(await visit.client.call_tool("order", {"item": "tea"})) == "tea: 2"


async def outcome_of(call: Awaitable[types.CallToolResult]) -> str:
    """The words with which a call failed, be they a tool's or the protocol's."""
    try:
        result = await call
    except ServerError as error:
        return str(error)
    assert result.is_error
    return str(result.content)


async def test_a_tool_that_fails_says_why(visit: Visit) -> None:
    result = await visit.client.call_tool("fails")

    assert result.is_error
    assert "The ticket office is closed." in str(result.content)


async def test_an_unknown_resource_is_the_servers_error(visit: Visit) -> None:
    with pytest.raises(ServerError, match="nope://x") as caught:
        await visit.client.read_resource("nope://x")
    assert caught.value.code in (-32602, -32002, 0)


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(visit: Visit) -> None:
    with pytest.raises(CallTimeout):
        await visit.client.call_tool("hangs", timeout=0.2)

    assert text_of(await visit.client.call_tool("abandoned", timeout=5)) == "abandoned"


# What is not asked


class Total(BaseModel):
    total: int


async def test_the_server_is_known_by_its_era_and_its_name(visit: Visit) -> None:
    session = visit.client.session

    assert session.era == visit.way.era
    assert session.version == ("2026-07-28" if visit.way.era == "modern" else "2025-11-25")
    assert session.server_info["name"] == "foreign"
    assert session.server_info["version"] == visit.way.peer.version
    assert session.instructions == "Ask for anything."
    assert {"tools", "prompts", "resources", "completions"} <= set(session.capabilities)
    assert session.version in (await visit.client.discover()).supported_versions


async def test_lists_are_whole(visit: Visit) -> None:
    client = visit.client
    tools = {tool.name: tool for tool in await client.list_tools()}

    assert {"add", "order", "visit", "poem", "places", "survey", "journey", "changes"} <= set(tools)
    assert tools["order"].input_schema["required"] == ["item"]
    assert (tools["add"].output_schema or {})["required"] == ["total"]
    assert {prompt.name for prompt in await client.list_prompts()} == {"motto", "briefing"}
    assert [str(resource.uri) for resource in await client.list_resources()] == ["note://plain"]
    templates = {template.uri_template for template in await client.list_resource_templates()}
    assert templates == {"note://{name}/page", "vault://{name}"}


async def test_structured_content_comes_as_a_type(visit: Visit) -> None:
    assert await visit.client.call_tool("add", {"a": 40, "b": 2}, result_type=Total) == Total(total=42)


async def test_prompts_resources_and_completions_come_through(visit: Visit) -> None:
    client = visit.client

    assert text_of(await client.get_prompt("motto")) == "Be on time."
    assert text_of(await client.read_resource("note://plain")) == "plain words"
    assert text_of(await client.read_resource("note://mio/page")) == "the page of mio"
    assert (await client.complete(prompt="briefing", argument="topic", value="tra")).values == [
        "trains",
        "trams",
    ]


async def test_progress_is_told_in_order(visit: Visit) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    result = await visit.client.call_tool("travels", progress=lambda *step: told.append(step))

    assert text_of(result) == "arrived"
    assert told == [(1, 3, "left"), (2, 3, "half way"), (3, 3, "there")]


async def test_the_servers_log_is_heard(visit: Visit) -> None:
    assert text_of(await visit.client.call_tool("talks")) == "said"

    heard = [(message["level"], message.get("logger")) for message in visit.log]
    assert heard == [("info", "foreign.talks"), ("warning", None)]
    assert "a word" in str(visit.log[0]["data"])


async def test_the_servers_log_is_heard_whichever_call_it_belongs_to(visit: Visit) -> None:
    await asyncio.gather(*(visit.client.call_tool("talks") for _ in range(3)))

    assert sorted(message["level"] for message in visit.log) == ["info"] * 3 + ["warning"] * 3


@at(without=("fastmcp-4.1-modern",))
async def test_a_changed_list_is_told_to_who_listens(visit: Visit) -> None:
    async def first_change() -> dict[str, Any]:
        async for change in visit.client.listen(tools=True):
            return change
        raise AssertionError("the subscription ended")

    listening = asyncio.ensure_future(first_change())
    async with asyncio.timeout(PATIENCE):
        while not listening.done():  # Changes before the subscription holds are not told.
            await visit.client.call_tool("changes")
            await asyncio.wait({listening}, timeout=0.05)

    assert listening.result()["method"] == "notifications/tools/list_changed"


@at(era="legacy", transport="http")
async def test_a_question_outside_of_every_call_reaches_a_client_that_has_just_come(visit: Visit) -> None:
    for _ in range(5):
        async with visit.another(roots=visit.person.roots) as client:
            assert text_of(await client.call_tool("places", timeout=5)) == "file:///a, file:///b"
