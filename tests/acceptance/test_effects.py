"""Every effect of `Context` on the modern wire: what it sends, what it gives, and how often it happens."""

import asyncio
import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp_types import (
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from pydantic import BaseModel

from ekiden import Context, InputRequired, RoundLimits, Server, UsageError
from ekiden.testing import CANCEL, DECLINE, Replicas, check_replay
from tests.acceptance.driving import (
    Client,
    accept,
    call,
    error_text,
    key_of,
    messages,
    new_server,
    only,
    process,
    said,
    text,
)

# step


async def test_a_step_runs_once_in_the_whole_call() -> None:
    ran: Counter[str] = Counter()

    def make() -> Server:
        server = new_server()

        @server.tool
        async def tool(ctx: Context, order: str) -> str:
            async def load(name: str, *, _unused: int = 0) -> str:
                ran[name] += 1
                return name.upper()

            loaded = await ctx.step(load, order)
            for n in range(3):
                await ctx.elicit(f"q{n}", bool)
            return loaded

        return server

    client = Replicas(make).client(lambda _key, _request: True)
    assert text(await client.call_tool("tool", {"order": "a7"})) == "A7"
    assert len(client.rounds) == 4
    assert ran == {"a7": 1}


async def test_equal_steps_in_a_row_each_run_once() -> None:
    server = new_server()
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def draw() -> int:
            ran.append(1)
            return len(ran)

        drawn = [await ctx.step(draw) for _ in range(3)]
        await ctx.elicit("ok?", bool)
        drawn.append(await ctx.step(draw))
        return str(drawn)

    assert text(await Client(server, {"ok?": True}).call_tool("tool")) == "[1, 2, 3, 4]"


async def test_steps_of_other_arguments_are_other_steps_in_whatever_order_they_come() -> None:
    ran: list[int] = []
    rounds: list[int] = []

    def square(n: int) -> int:
        ran.append(n)
        return n * n

    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        rounds.append(1)
        numbers = [1, 2, 3] if len(rounds) == 1 else [3, 1, 2]
        squares = {n: await ctx.step(square, n) for n in numbers}
        await ctx.elicit("ok?", bool)
        return str(sorted(squares.items()))

    assert text(await Client(server, {"ok?": True}).call_tool("tool")) == "[(1, 1), (2, 4), (3, 9)]"
    assert ran == [1, 2, 3]


async def test_a_plain_function_runs_as_a_step_in_a_thread() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        return str(await ctx.step(threading.get_ident) != threading.get_ident())

    assert text(await Client(server).call_tool("tool")) == "True"


async def test_a_step_that_blocks_its_thread_does_not_block_the_server() -> None:
    server = new_server()
    release = threading.Event()

    @server.tool
    async def tool(ctx: Context) -> str:
        return str(await ctx.step(release.wait, 10, key="wait"))

    @server.tool
    async def other() -> str:
        release.set()
        return "free"

    client = Client(server)
    blocked = asyncio.create_task(client.ask("tool"))
    await asyncio.sleep(0)
    assert text(await client.call_tool("other")) == "free"
    assert text(await blocked) == "True"


async def test_the_step_key_is_the_same_for_a_step_however_often_it_is_tried_and_no_other_steps() -> None:
    seen: list[list[str]] = []

    def make() -> Server:
        server = new_server()

        @server.tool(once=False)
        async def tool(ctx: Context) -> str:
            def first() -> str:
                return ctx.step_key

            async def second(_n: int) -> str:
                return ctx.step_key

            await ctx.elicit("ok?", bool)
            keys = [
                await ctx.step(first),
                await ctx.step(first),
                await ctx.step(second, 1),
                await ctx.step(second, 2),
            ]
            seen.append(keys)
            return "done"

        return server

    one, other = Client(make()), Client(make())
    asked = await one.ask("tool")
    for client in (one, one, other):
        assert text(await client.retry(asked, {only(asked): accept(True)})) == "done"
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) == 4

    elsewhere = await one.ask("tool")
    await one.retry(elsewhere, {only(elsewhere): accept(True)})
    assert not set(seen[3]) & set(seen[0]), "another call must have other keys"


async def test_the_step_key_exists_only_inside_a_step() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        with pytest.raises(UsageError):
            _ = ctx.step_key
        return "refused"

    assert text(await Client(server).call_tool("tool")) == "refused"


@pytest.mark.parametrize("effect", ["elicit", "sample", "list_roots", "checkpoint"])
async def test_a_step_that_asks_is_a_clear_error(effect: str, caplog: pytest.LogCaptureFixture) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        async def asks() -> str:
            effects: dict[str, Any] = {
                "elicit": lambda: ctx.elicit("from within?", bool),
                "sample": lambda: ctx.sample("from within?", max_tokens=1),
                "list_roots": ctx.list_roots,
                "checkpoint": ctx.checkpoint,
            }
            await effects[effect]()
            return "asked"

        return await ctx.step(asks)

    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(30):
            played = await Client(server).ask("tool")
    assert error_text(played)
    assert "step" in caplog.text


async def test_a_step_within_a_step_works_or_is_refused_at_once() -> None:
    server = new_server()
    ran: Counter[str] = Counter()

    @server.tool
    async def tool(ctx: Context) -> str:
        def inner() -> int:
            ran["inner"] += 1
            return 1

        async def outer() -> int:
            ran["outer"] += 1
            return await ctx.step(inner)

        value = await ctx.step(outer)
        await ctx.elicit("ok?", bool)
        return str(value)

    result = await Client(server, {"ok?": True}).call_tool("tool")
    assert result.get("isError") or (text(result), ran) == ("1", {"inner": 1, "outer": 1})


# The arguments of steps


class Currency(Enum):
    EUR = "eur"


@dataclass
class Money:
    amount: Decimal
    currency: Currency


class Order(BaseModel):
    number: int
    lines: list[str]


def _deep() -> Any:
    value: Any = 1
    for _ in range(2000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "argument",
    [
        Order(number=1, lines=["a"]),
        Money(Decimal("1.10"), Currency.EUR),
        datetime(2026, 7, 28, tzinfo=UTC),
        {"a", "b", "c"},
        (1, (2, 3)),
        {1: "a", "1": "b"},
        {(1, 2): 3},
        b"\x00\xff",
        2**200,
        -(2**200),
        float("nan"),
        float("inf"),
        "\ud800",
        _deep(),
        Path("/tmp/x"),
        Currency.EUR,
        None,
        len,
        object(),
    ],
    ids=lambda argument: type(argument).__name__,
)
async def test_a_step_with_any_argument_runs_once_or_is_refused_by_name(
    argument: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server()
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def use_it(_argument: Any) -> int:
            ran.append(1)
            return 1

        await ctx.step(use_it, argument)
        await ctx.elicit("one", bool)
        await ctx.elicit("two", bool)
        return "done"

    result = await Client(server, {"one": True, "two": True}).call_tool("tool")
    if result.get("isError"):
        told = [str(r.exc_info[1]) if r.exc_info else r.getMessage() for r in caplog.records]
        assert "use_it" in " ".join(told)
        assert ran == []
    else:
        assert ran == [1]


async def test_steps_of_unlike_arguments_are_never_taken_for_each_other() -> None:
    server = new_server()
    rounds: list[int] = []
    pairs: list[tuple[Any, Any]] = [
        (1, True),
        (0, False),
        (1, "1"),
        (None, "null"),
        ([1, 2], [[1, 2]]),
        ({"a": 1}, [["a", 1]]),
        ("a", b"a"),
        (1, 1.5),
        ([], {}),
        ("", None),
        (2**63, 2**63 + 1),
    ]

    @server.tool
    async def tool(ctx: Context) -> str:
        def show(value: Any) -> str:
            return repr(value)

        rounds.append(1)
        for one, other in pairs:
            both = (one, other) if len(rounds) == 1 else (other, one)  # Only the arguments tell them apart.
            assert [await ctx.step(show, value) for value in both] == [repr(value) for value in both]
        await ctx.elicit("ok?", bool)
        return "done"

    assert text(await Client(server, {"ok?": True}).call_tool("tool")) == "done"


_SETS = """
import sys
from ekiden import Context, Server

server = Server("sets", keys=[b"k" * 32])

@server.tool
async def tool(ctx: Context) -> str:
    def pay(tags: set[str], nested: dict[str, frozenset[str]]) -> str:
        return sys.argv[1]

    tags = {f"tag-{n}" for n in range(20)}
    paid = await ctx.step(pay, tags, {"tags": frozenset(tags)})
    await ctx.elicit("ok?", bool, key="k")
    return paid

server.run("stdio", grace=1)
"""


async def test_a_set_as_an_argument_is_the_same_in_every_process() -> None:
    """Python orders the members of a set differently in every process."""
    async with (
        process(_SETS, "one", PYTHONHASHSEED="1") as one,
        process(_SETS, "two", PYTHONHASHSEED="2") as two,
    ):
        first = (await one.exchange(call("tool")))["result"]
        if first.get("isError"):
            return  # A set is refused: as good.
        retry = {"inputResponses": {"k": accept(True)}, "requestState": first["requestState"]}
        done = await two.exchange(call("tool", {}, 2, **retry))
        assert text(done["result"]) == "one"


async def test_the_arguments_of_a_partial_tell_steps_apart() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        def pay(who: str) -> str:
            return who

        async def branch(name: str) -> str:
            await ctx.elicit(name, bool)
            return f"{name}:{await ctx.step(partial(pay, name))}"

        return " ".join(await asyncio.gather(branch("a"), branch("b")))

    client = Client(server)
    first = await client.ask("tool")
    second = await client.retry(first, {key_of(first, "b"): accept(True)})
    assert text(await client.retry(second, {only(second): accept(True)})) == "a:a b:b"


# now, uuid, random


async def test_time_ids_and_chance_are_the_same_in_every_round() -> None:
    drawn: list[tuple[Any, ...]] = []

    def make() -> Server:
        server = new_server()

        @server.tool
        async def tool(ctx: Context) -> str:
            values = [ctx.now(), ctx.uuid(), ctx.random(), ctx.now(), ctx.uuid(), ctx.random()]
            await ctx.elicit("one", bool)
            values += [ctx.uuid(key="mine")]
            drawn.append(tuple(values))
            await ctx.elicit("two", bool)
            return "done"

        return server

    client = Replicas(make).client({"one": True, "two": True})
    assert text(await client.call_tool("tool")) == "done"
    assert drawn[0] == drawn[1]
    now, uuid, chance, later, uuid2, chance2, mine = drawn[0]
    assert now.utcoffset().total_seconds() == 0
    assert now <= later
    assert len({uuid, uuid2, mine}) == 3
    assert uuid.version == 4
    assert chance != chance2
    assert 0 <= chance < 1
    assert 0 <= chance2 < 1
    await Replicas(make).client({"one": True, "two": True}).call_tool("tool")
    assert drawn[2][1] != uuid


# checkpoint


async def test_a_checkpoint_ends_the_round_with_state_only_and_any_replica_goes_on() -> None:
    ran: list[int] = []

    def make() -> Server:
        server = new_server()

        @server.tool
        async def tool(ctx: Context) -> str:
            def work() -> int:
                ran.append(1)
                return 7

            worked = await ctx.step(work)
            await ctx.checkpoint()
            await ctx.checkpoint()
            return str(worked)

        return server

    client = Replicas(make).client()
    assert text(await client.call_tool("tool")) == "7"
    assert ran == [1]
    assert len(client.rounds) == 3
    for played in client.rounds[:2]:
        assert played.result.keys() == {"resultType", "requestState", "_meta"}


async def test_a_checkpoint_beside_a_question_does_not_hold_the_question_back() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        _, answer = await asyncio.gather(ctx.checkpoint(), ctx.elicit("ok?", bool))
        return str(answer.data)

    client = Client(server, {"ok?": True})
    assert text(await client.call_tool("tool")) == "True"
    assert messages(client.rounds[0]) == ["ok?"]


# sleep


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


async def test_a_sleep_never_holds_back_a_round_that_has_questions() -> None:
    clock = Clock()
    server = new_server(clock=clock)

    @server.tool
    async def tool(ctx: Context) -> str:
        _, answer = await asyncio.gather(ctx.sleep(300), ctx.elicit("ok?", bool))
        return str(answer.data)

    client = Client(server)
    first = await client.ask("tool")
    assert messages(first) == ["ok?"]
    clock.now += 301  # The deadline of the first round has passed: nothing is left to wait for.
    assert text(await client.retry(first, {only(first): accept(True)})) == "True"


async def test_a_sleep_with_nothing_to_ask_is_slept() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.sleep(0.2)
        return "rested"

    begun = asyncio.get_running_loop().time()
    assert text(await Client(server).call_tool("tool")) == "rested"
    assert asyncio.get_running_loop().time() - begun >= 0.19


# on_complete


async def test_on_complete_runs_once_after_the_handler_and_before_the_reply() -> None:
    server = new_server()
    told: list[str] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        ctx.on_complete(told.append, "completed")
        await ctx.elicit("one", bool)
        await ctx.elicit("two", bool)
        told.append("returning")
        return "done"

    client = Client(server)
    one = await client.ask("tool")
    two = await client.retry(one, {only(one): accept(True)})
    assert told == []
    assert text(await client.retry(two, {only(two): accept(True)})) == "done"
    assert told == ["returning", "completed"]


@pytest.mark.parametrize("how", ["returned", "raised"])
async def test_on_complete_does_not_run_when_a_handler_asks_by_itself(how: str) -> None:
    server = new_server()
    told: list[str] = []

    @server.tool
    async def tool(ctx: Context) -> Any:
        ctx.on_complete(told.append, "completed")
        if "roots" in ctx.input_responses:
            return "done"
        asked = InputRequired({"roots": {"method": "roots/list"}})
        if how == "raised":
            raise asked
        return asked

    client = Client(server)
    first = await client.ask("tool")
    assert told == []
    assert text(await client.retry(first, {"roots": {"roots": []}})) == "done"
    assert told == ["completed"]


async def test_on_complete_runs_once_though_the_last_round_is_repeated() -> None:
    server = new_server()
    told: list[str] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        ctx.on_complete(told.append, "completed")
        await ctx.elicit("ok?", bool)
        return "done"

    client = Client(server)
    first = await client.ask("tool")
    for _ in range(2):
        async with asyncio.timeout(30):
            assert text(await client.retry(first, {only(first): accept(True)})) == "done"
    assert told == ["completed"]


async def test_on_complete_does_not_run_where_the_handler_raises() -> None:
    server = new_server()
    told: list[str] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        ctx.on_complete(told.append, "completed")
        raise ValueError("no")

    assert error_text(await Client(server).call_tool("tool"))
    assert told == []


async def test_several_on_complete_run_in_their_order_and_async_ones_too() -> None:
    server = new_server()
    told: list[int] = []

    async def tell(n: int) -> None:
        await asyncio.sleep(0)
        told.append(n)

    @server.tool
    async def tool(ctx: Context) -> str:
        for n in range(3):
            ctx.on_complete(tell, n)
        return "done"

    assert text(await Client(server).call_tool("tool")) == "done"
    assert told == [0, 1, 2]


# elicit_url


async def test_a_page_is_shown_and_consent_is_told() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit_url("Sign in, please.", "https://example.com/in?flow=1")
        return f"{answer.action} {answer.data}"

    for reply, told in (
        ({"action": "accept"}, "accept None"),
        (DECLINE, "decline None"),
        (CANCEL, "cancel None"),
    ):
        client = Client(server, {"Sign in, please.": reply})
        assert text(await client.call_tool("tool")) == told
        (asked,) = client.rounds[0].requests.values()
        assert asked == {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "Sign in, please.", "url": "https://example.com/in?flow=1"},
        }


async def test_a_page_can_be_offered_until_the_work_there_is_done() -> None:
    server = new_server()
    finished: list[bool] = [False, False, True]

    @server.tool
    async def tool(ctx: Context) -> str:
        def check() -> bool:
            return finished.pop(0)

        times = 0
        while not await ctx.step(check):
            times += 1
            await ctx.elicit_url("Sign in, please.", "https://example.com/in")
        return str(times)

    client = Client(server, {"Sign in, please.": {"action": "accept"}})
    assert text(await client.call_tool("tool")) == "2"


# sample


async def test_sampling_sends_all_its_parameters() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        result = await ctx.sample(
            [
                "Weather in Paris?",
                SamplingMessage(
                    role="assistant",
                    content=[
                        ToolUseContent(type="tool_use", id="1", name="weather", input={"city": "Paris"})
                    ],
                ),
                SamplingMessage(
                    role="user",
                    content=[
                        ToolResultContent(
                            type="tool_result", tool_use_id="1", content=[TextContent(type="text", text="18")]
                        )
                    ],
                ),
            ],
            max_tokens=100,
            system_prompt="Be brief.",
            temperature=0.1,
            stop_sequences=["\n\n"],
            model_preferences=ModelPreferences(
                hints=[ModelHint(name="claude")],
                cost_priority=0.3,
                speed_priority=0.5,
                intelligence_priority=0.8,
            ),
            include_context="none",
            tools=[
                Tool(
                    name="weather",
                    description="Weather of a city",
                    input_schema={"type": "object", "properties": {"city": {"type": "string"}}},
                )
            ],
            tool_choice=ToolChoice(mode="auto"),
            metadata={"vendor": {"seed": 1}},
        )
        return f"{result.model} {result.stop_reason}"

    client = Client(
        server, lambda _key, _request: {**said("18 degrees"), "model": "m-1", "stopReason": "endTurn"}
    )
    assert text(await client.call_tool("tool")) == "m-1 endTurn"
    (asked,) = client.rounds[0].requests.values()
    assert asked == {
        "method": "sampling/createMessage",
        "params": {
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "Weather in Paris?"}},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Paris"}}
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "toolUseId": "1",
                            "content": [{"type": "text", "text": "18"}],
                        }
                    ],
                },
            ],
            "maxTokens": 100,
            "systemPrompt": "Be brief.",
            "temperature": 0.1,
            "stopSequences": ["\n\n"],
            "modelPreferences": {
                "hints": [{"name": "claude"}],
                "costPriority": 0.3,
                "speedPriority": 0.5,
                "intelligencePriority": 0.8,
            },
            "includeContext": "none",
            "tools": [
                {
                    "name": "weather",
                    "description": "Weather of a city",
                    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
                }
            ],
            "toolChoice": {"mode": "auto"},
            "metadata": {"vendor": {"seed": 1}},
        },
    }


async def test_a_loop_of_sampling_with_tools_goes_over_several_rounds() -> None:
    server = new_server()
    weather: Counter[str] = Counter()

    @server.tool
    async def tool(ctx: Context) -> str:
        def look_up(city: str) -> str:
            weather[city] += 1
            return f"{city}: 18"

        tools = [Tool(name="weather", input_schema={"type": "object"})]
        history: list[Any] = [
            SamplingMessage(role="user", content=TextContent(type="text", text="Paris and London?"))
        ]
        while True:
            reply = await ctx.sample(history, max_tokens=100, tools=tools)
            uses = reply.content if isinstance(reply.content, list) else [reply.content]
            calls = [use for use in uses if isinstance(use, ToolUseContent)]
            if not calls:
                return str(uses[0].text)  # type: ignore[union-attr]
            results: list[Any] = [
                ToolResultContent(
                    type="tool_result",
                    tool_use_id=use.id,
                    content=[TextContent(type="text", text=await ctx.step(look_up, use.input["city"]))],
                )
                for use in calls
            ]
            history += [
                SamplingMessage(role="assistant", content=reply.content),
                SamplingMessage(role="user", content=results),
            ]

    def model(_key: str, request: dict[str, Any]) -> Any:
        if len(request["params"]["messages"]) > 1:
            return said("Both 18")
        return {
            "role": "assistant",
            "model": "m",
            "stopReason": "toolUse",
            "content": [
                {"type": "tool_use", "id": str(n), "name": "weather", "input": {"city": city}}
                for n, city in enumerate(("Paris", "London"))
            ],
        }

    client = Client(server, model)
    assert text(await client.call_tool("tool")) == "Both 18"
    assert weather == {"Paris": 1, "London": 1}
    assert len(client.rounds) == 3
    (second,) = client.rounds[1].requests.values()
    assert second["params"]["messages"][1]["content"] == [
        {"type": "tool_use", "id": "0", "name": "weather", "input": {"city": "Paris"}},
        {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "London"}},
    ]


@pytest.mark.parametrize(
    "content",
    [
        {"type": "text", "text": "words"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    ],
)
async def test_every_kind_of_content_that_a_model_makes_reaches_the_handler(content: Any) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        reply = await ctx.sample("Make something", max_tokens=1)
        blocks = reply.content if isinstance(reply.content, list) else [reply.content]
        return " ".join(block.type for block in blocks)

    client = Client(server, lambda _k, _r: {"role": "assistant", "model": "m", "content": content})
    types = [block["type"] for block in (content if isinstance(content, list) else [content])]
    assert text(await client.call_tool("tool")) == " ".join(types)


# list_roots


async def test_roots_come_with_their_names() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        return " ".join(f"{root.uri}={root.name}" for root in await ctx.list_roots())

    roots = {"roots": [{"uri": "file:///home/a", "name": "A"}, {"uri": "file:///home/b"}]}
    client = Client(server, lambda _k, _r: roots)
    assert text(await client.call_tool("tool")) == "file:///home/a=A file:///home/b=None"
    (asked,) = client.rounds[0].requests.values()
    assert asked["method"] == "roots/list"
    assert asked.keys() <= {"method", "params"}


async def test_no_roots_are_roots() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        return str(await ctx.list_roots())

    assert text(await Client(server, lambda _k, _r: {"roots": []}).call_tool("tool")) == "[]"


# progress and log


async def test_progress_and_log_are_sent_only_past_the_replayed_part() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.progress(1, 3, "begun")
        await ctx.log("info", "begun")
        await ctx.elicit("one", bool)
        await ctx.progress(2, 3)
        await ctx.elicit("two", bool)
        await ctx.progress(3, 3)
        return "done"

    meta = {"progressToken": "t-1", "io.modelcontextprotocol/logLevel": "info"}
    client = Client(server, {"one": True, "two": True}, meta=meta)
    await client.call_tool("tool")
    told = [
        [note["params"].get("progress", "log") for note in played.notifications] for played in client.rounds
    ]
    assert told == [[1, "log"], [2], [3]]
    silent = Client(server, {"one": True, "two": True})
    await silent.call_tool("tool")
    assert all(played.notifications == [] for played in silent.rounds)


@pytest.mark.parametrize("asks", [{"roots": {"method": "roots/list"}}, {}])
async def test_progress_and_log_of_a_handler_that_asks_by_hand_are_sent_in_every_round(asks: Any) -> None:
    """It is called again for the next part of its work, and repeats nothing."""
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> Any:
        if ctx.request_state is None:
            await ctx.progress(1)
            return InputRequired(asks, "second")
        await ctx.progress(2)
        await ctx.log("info", "on the way")
        return InputRequired(asks, "third") if ctx.request_state == "second" else "done"

    meta = {"progressToken": "t-1", "io.modelcontextprotocol/logLevel": "info"}
    client = Client(server, lambda _key, _request: {"roots": []}, meta=meta)
    assert text(await client.call_tool("tool")) == "done"
    told = [
        [note["params"].get("progress", "log") for note in played.notifications] for played in client.rounds
    ]
    assert told == [[1], [2, "log"], [2, "log"]]


# Checks on the author


async def test_a_handler_whose_rerun_is_dear_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server(rounds=RoundLimits(rerun_seconds=0.01))

    @server.tool
    async def dear(ctx: Context) -> str:
        await asyncio.sleep(0.03)
        await ctx.elicit("ok?", bool)
        return "done"

    with caplog.at_level(logging.WARNING):
        assert text(await Client(server, {"ok?": True}).call_tool("dear")) == "done"
    (warning,) = [r.getMessage() for r in caplog.records if "dear" in r.getMessage()]
    assert "step" in warning


async def test_a_cheap_handler_is_not_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server(rounds=RoundLimits(rerun_seconds=0.1))

    @server.tool
    async def cheap(ctx: Context) -> str:
        async def slow() -> int:
            await asyncio.sleep(0.2)
            return 1

        await ctx.step(slow)
        await ctx.elicit("ok?", bool)
        return "done"

    with caplog.at_level(logging.WARNING):
        assert text(await Client(server, {"ok?": True}).call_tool("cheap")) == "done"
    assert caplog.records == []


async def test_equal_effects_in_concurrent_branches_are_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server()

    @server.tool
    async def twins(ctx: Context) -> str:
        answers = await asyncio.gather(ctx.elicit("Same?", bool), ctx.elicit("Same?", bool))
        return str([answer.data for answer in answers])

    client = Client(server)
    with caplog.at_level(logging.WARNING):
        first = await client.ask("twins")
        assert len(first.requests) == 2
        answers = dict(zip(first.requests, (accept(True), accept(False)), strict=True))
        done = await client.retry(first, answers, "twins")
    assert text(done) == "[True, False]"
    assert any("key=" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("keyed", [False, True])
async def test_draws_in_concurrent_branches_want_keys(keyed: bool, caplog: pytest.LogCaptureFixture) -> None:
    server = new_server()

    @server.tool
    async def twins(ctx: Context) -> str:
        async def branch(name: str) -> str:
            await ctx.elicit(name, bool)
            return str(ctx.uuid(key=name if keyed else None))

        one, other = await asyncio.gather(branch("a"), branch("b"))
        await ctx.elicit("c", bool)
        return str(one != other)

    with caplog.at_level(logging.WARNING):
        client = Client(server, lambda _k, _r: True)
        assert text(await client.call_tool("twins")) == "True"
    assert any("key=" in record.getMessage() for record in caplog.records) is not keyed


@pytest.mark.parametrize("effect", ["uuid", "elicit", "step"])
async def test_an_effect_in_a_plain_def_handler_is_a_clear_error(
    effect: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Plain functions run in a thread and have the manual way only."""
    server = new_server()

    @server.tool
    def tool(ctx: Context) -> str:
        if effect == "uuid":
            return str(ctx.uuid())
        asking: Any = ctx.elicit("ok?", bool) if effect == "elicit" else ctx.step(int)
        try:
            asking.send(None)
        finally:
            asking.close()
        return "went through"

    assert error_text(await Client(server).call_tool("tool"))
    (record,) = [r for r in caplog.records if r.exc_info]
    assert record.exc_info
    assert isinstance(record.exc_info[1], UsageError)


async def test_a_plain_def_handler_runs_in_a_thread() -> None:
    server = new_server()

    @server.tool
    def tool(ctx: Context) -> str:
        return str(threading.get_ident())

    assert text(await Client(server).call_tool("tool")) != str(threading.get_ident())


async def test_a_handler_that_nears_ten_rounds_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server()

    @server.tool
    async def chatty(ctx: Context) -> str:
        for n in range(11):
            await ctx.elicit(f"q{n}", bool)
        return "done"

    with caplog.at_level(logging.WARNING):
        assert text(await Client(server, lambda _k, _r: True).call_tool("chatty")) == "done"
    assert any("chatty" in record.getMessage() for record in caplog.records)


async def test_check_replay_finds_what_varies_and_accepts_what_does_not() -> None:
    from ekiden.testing import ReplayDiffers

    def steady() -> Server:
        server = new_server()

        @server.tool
        async def tool(ctx: Context) -> str:
            await ctx.elicit(f"At {ctx.now().isoformat()[:2]}?", bool)
            return "done"

        return server

    assert text(await check_replay(steady, "tool", {}, lambda _k, _r: True)) == "done"

    def varying() -> Server:
        server = new_server()
        runs: list[int] = []

        @server.tool
        async def tool(ctx: Context) -> str:
            runs.append(1)
            if len(runs) == 1:
                await ctx.elicit("Only once?", bool)
            await ctx.elicit("Always?", bool)
            return "done"

        return server

    with pytest.raises(ReplayDiffers):
        await check_replay(varying, "tool", {}, lambda _k, _r: True)
