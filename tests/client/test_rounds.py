"""Calls of several rounds: who is asked, when, and what goes over the wire."""

import asyncio
import time
from typing import Any

import pytest
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    TextContent,
)

from ekiden import (
    CallTimeout,
    CannotAnswer,
    Client,
    Context,
    InputRequired,
    Server,
    TooManyRounds,
)
from ekiden.client import pending as pending_calls
from tests.hostile.evil import Deed, Evil, answers, evil
from tests.serving import served, soon

KEY = b"a key of at least thirty-two bytes!"


def form(message: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"value": {"type": "string"}}}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


SAMPLE: dict[str, Any] = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 5},
}
ROOTS = {"method": "roots/list"}


def interim(requests: dict[str, Any] | None = None, state: str | None = None) -> dict[str, Any]:
    fields = {"inputRequests": requests, "requestState": state}
    return {"resultType": "input_required", **{k: v for k, v in fields.items() if v is not None}}


def in_turn(*results: dict[str, Any]) -> Deed:
    """Answer with one result after another."""
    waiting = iter(results)

    async def deed(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        await answers(next(waiting))(writer, message)

    return deed


def calls(server: Evil) -> list[dict[str, Any]]:
    return [message for message in server.messages if message["method"] == "tools/call"]


async def agree(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": params.message})


async def say(params: CreateMessageRequestParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text="hello"))


DONE = {"resultType": "complete", "content": []}


async def test_a_retry_is_the_original_with_a_new_id_the_answers_and_the_exact_state() -> None:
    strange = 'A "state" with \\ and \u2028 and ü'
    deed = in_turn(
        interim({"a": form("one")}, strange), interim({"b": form("two")}), interim(None, "s"), DONE
    )
    async with evil({"deed": deed}) as server, Client(server.url, elicit=agree) as client:
        await client.call_tool("deed", {"x": [1]}, meta={"my/key": 1})
    sent = calls(server)
    assert len({message["id"] for message in sent}) == 4
    answered = [message["params"].pop("inputResponses", None) for message in sent]
    states = [message["params"].pop("requestState", None) for message in sent]
    assert states == [None, strange, None, "s"], "no state where none was given"
    assert answered == [
        None,
        {"a": {"action": "accept", "content": {"value": "one"}}},
        {"b": {"action": "accept", "content": {"value": "two"}}},
        None,
    ]
    assert all(message["params"] == sent[0]["params"] for message in sent)
    assert sent[0]["params"]["arguments"] == {"x": [1]}
    assert sent[0]["params"]["_meta"]["my/key"] == 1


async def test_nothing_of_a_call_leaks_into_another() -> None:
    async def deed(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        params = message["params"]
        me = params["arguments"]["me"]
        if "requestState" not in params:
            return await answers(interim({"k": form(me)}, f"state of {me}"))(writer, message)
        assert params["requestState"] == f"state of {me}"
        assert params["inputResponses"]["k"]["content"] == {"value": me}
        return await answers({**DONE, "structuredContent": me})(writer, message)

    async with evil({"deed": deed}) as server, Client(server.url, elicit=agree) as client:
        names = [f"call {number}" for number in range(20)]
        results = await asyncio.gather(*(client.call_tool("deed", {"me": name}) for name in names))
    assert [result.structured_content for result in results] == names


async def test_all_kinds_of_one_round_are_answered_at_the_same_time() -> None:
    barrier = asyncio.Barrier(3)

    async def elicit(params: ElicitRequestFormParams) -> ElicitResult:
        await barrier.wait()
        return ElicitResult(action="decline")

    async def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
        await barrier.wait()
        return await say(params)

    async def roots() -> list[str]:
        await barrier.wait()
        return ["file:///home"]

    deed = in_turn(interim({"f": form("?"), "s": SAMPLE, "r": ROOTS}), DONE)
    callbacks: dict[str, Any] = {"elicit": elicit, "sample": sample, "roots": roots}
    async with evil({"deed": deed}) as server, Client(server.url, **callbacks) as client:
        await soon(client.call_tool("deed"))
    assert calls(server)[1]["params"]["inputResponses"] == {
        "f": {"action": "decline"},
        "s": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}},
        "r": {"roots": [{"uri": "file:///home"}]},
    }


async def test_the_first_failure_cancels_the_others_and_surfaces() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def elicit(params: ElicitRequestFormParams) -> ElicitResult:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        raise AssertionError

    async def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
        await begun.wait()
        raise LookupError("no model")

    deed = in_turn(interim({"f": form("?"), "s": SAMPLE}))
    async with evil({"deed": deed}) as server, Client(server.url, elicit=elicit, sample=sample) as client:
        with pytest.raises(LookupError, match="no model"):
            await soon(client.call_tool("deed"))
        assert stopped.is_set()
        assert len(calls(server)) == 1, "nothing is sent after a failure"
        await client.call_tool("honest")


async def test_what_nobody_can_answer_is_found_before_anybody_is_asked() -> None:
    asked: list[str] = []

    async def elicit(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={})

    tool = {"name": "t", "inputSchema": {"type": "object"}}
    with_tools = {**SAMPLE, "params": {**SAMPLE["params"], "tools": [tool]}}
    at = {"mode": "url", "message": "?", "url": "https://x/", "elicitationId": "1"}
    page = {"method": "elicitation/create", "params": at}
    for lacking, kind in ((ROOTS, "roots"), (SAMPLE, "sampling"), (page, "elicitation by url")):
        deed = in_turn(interim({"f": form("?"), "l": lacking}))
        async with evil({"deed": deed}) as server, Client(server.url, elicit=elicit) as client:
            with pytest.raises(CannotAnswer) as caught:
                await client.call_tool("deed")
            assert caught.value.kinds == {"l": kind}
    deed = in_turn(interim({"f": form("?"), "l": with_tools}))
    async with evil({"deed": deed}) as server, Client(server.url, elicit=elicit, sample=say) as client:
        with pytest.raises(CannotAnswer, match="sampling with tools"):
            await client.call_tool("deed")
    assert asked == []


async def visit(params: ElicitRequestURLParams) -> ElicitResult:
    return ElicitResult(action="accept")


@pytest.mark.parametrize(
    ("callbacks", "declared"),
    [
        ({}, {}),
        ({"elicit": agree}, {"elicitation": {"form": {}}}),
        ({"elicit_url": visit}, {"elicitation": {"url": {}}}),
        ({"elicit": agree, "elicit_url": visit}, {"elicitation": {"form": {}, "url": {}}}),
        ({"sample": say}, {"sampling": {}}),
        ({"sample": say, "sample_tools": True}, {"sampling": {"tools": {}}}),
        ({"roots": []}, {"roots": {}}),
    ],
)
async def test_capabilities_are_exactly_the_callbacks(callbacks: Any, declared: Any) -> None:
    """And tasks, which the client looks after by itself, whatever the callbacks."""
    declared = {**declared, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with evil({}) as server, Client(server.url, **callbacks) as client:
        await client.call_tool("honest")
        for message in server.messages:
            meta = message["params"]["_meta"]
            assert meta["io.modelcontextprotocol/clientCapabilities"] == declared


async def test_the_cap_on_rounds_holds_before_anybody_is_asked_again() -> None:
    asked: list[str] = []

    async def elicit(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={})

    deed = answers(interim({"k": form("Again?")}))
    async with evil({"deed": deed}) as server, Client(server.url, elicit=elicit) as client:
        with pytest.raises(TooManyRounds, match="10 rounds"):
            await client.call_tool("deed")
        assert (len(calls(server)), len(asked)) == (11, 10)
        with pytest.raises(TooManyRounds):
            await client.call_tool("deed", max_rounds=0)
        assert (len(calls(server)), len(asked)) == (12, 10)


async def test_the_clock_runs_while_somebody_thinks() -> None:
    stopped = asyncio.Event()

    async def think(params: ElicitRequestFormParams) -> ElicitResult:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        raise AssertionError

    deed = answers(interim({"k": form("?")}))
    async with evil({"deed": deed}) as server, Client(server.url, elicit=think) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("deed", timeout=0.2)
    assert stopped.is_set()


async def test_a_timeout_of_the_callers_own_is_not_taken_for_the_clients() -> None:
    async def impatient(params: ElicitRequestFormParams) -> ElicitResult:
        raise TimeoutError("mine")

    deed = answers(interim({"k": form("?")}))
    async with evil({"deed": deed}) as server, Client(server.url, elicit=impatient) as client:
        with pytest.raises(TimeoutError, match="mine"):
            await client.call_tool("deed")


async def test_rounds_with_state_only_are_paced() -> None:
    deed = in_turn(*(interim(None, str(n)) for n in range(4)), DONE)
    async with evil({"deed": deed}) as server, Client(server.url) as client:
        began = time.monotonic()
        await client.call_tool("deed")
        assert time.monotonic() - began >= 0.02 + 0.04 + 0.08 + 0.16
        assert "inputResponses" not in calls(server)[-1]["params"]


def test_a_call_that_is_polled_for_long_is_polled_every_second() -> None:
    assert [pending_calls.pace(idle) for idle in (7, 100, 5000)] == [1.0, 1.0, 1.0]


async def test_cancelling_in_a_retry_ends_everything() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()
    server = Server("s", keys=[KEY])

    @server.tool
    async def slow(ctx: Context) -> str:
        """Ask, then never end."""
        await ctx.elicit("Go on?", str)
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        raise AssertionError

    async with served(server) as base:
        for target in (f"{base}/mcp", server):
            begun.clear()
            stopped.clear()
            async with Client(target, elicit=agree) as client:
                call = asyncio.ensure_future(client.call_tool("slow"))
                await soon(begun.wait())
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                await soon(stopped.wait())


async def test_prompts_and_resources_ask_too() -> None:
    server = Server("s", keys=[KEY])

    @server.prompt
    async def greet(ctx: Context) -> str:
        """Greet."""
        answer = await ctx.elicit("Who?", str)
        return f"Hello {answer.data}"

    @server.resource("note://{name}")
    async def note(name: str, ctx: Context) -> str:
        """A note."""
        answer = await ctx.elicit("Really?", str)
        return f"{name}: {answer.data}"

    @server.tool
    async def manual(ctx: Context) -> InputRequired | str:
        """Ask the manual way."""
        if ctx.request_state is None:
            return InputRequired({"k": form("By hand?")}, request_state="s")
        return str(ctx.input_responses["k"].content)

    async with served(server) as base, Client(f"{base}/mcp", elicit=agree) as client:
        message = (await client.get_prompt("greet")).messages[0]
        assert getattr(message.content, "text", None) == "Hello Who?"
        assert getattr((await client.read_resource("note://a")).contents[0], "text", None) == "a: Really?"
        result = await client.call_tool("manual")
        assert isinstance(result, CallToolResult)
        assert "By hand?" in str(result.content)


async def test_the_author_of_a_long_call_is_warned_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_calls, "pace", lambda _idle_rounds: 0.0)
    server = Server("long", keys=[b"a key of at least thirty-two bytes!"])

    @server.tool
    async def long(ctx: Context) -> str:
        for _ in range(15):
            await ctx.checkpoint()
        return "done"

    async with Client(server, max_rounds=20) as client:
        assert (await client.call_tool("long")).content
    warned = [r.getMessage() for r in caplog.records if "give up after 10" in r.getMessage()]
    assert warned == ["Tool 'long' has ended 8 rounds; clients give up after 10 by default"]
