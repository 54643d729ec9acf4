"""Calls that their user lets go of: turned to JSON, carried away, resumed by somebody else."""

import json
import subprocess
from typing import Any

import pytest
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult
from pydantic import BaseModel

from ekiden import CallTimeout, Client, Context, InvalidResult, PendingCall, Server, TooManyRounds, UsageError
from tests import warm
from tests.hostile.evil import answers, evil
from tests.serving import PATIENCE, served

from .test_rounds import DONE, form, in_turn, interim


async def agree(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": "yes"})


class Sum(BaseModel):
    total: int


def make_server() -> Server:
    server = Server("s", keys=[b"a key of at least thirty-two bytes!"])

    @server.tool
    async def twice(word: str, ctx: Context) -> str:
        """Ask twice."""
        first = await ctx.elicit(f"{word}, first?", str)
        second = await ctx.elicit(f"{word}, second?", str)
        return f"{first.data} {second.data}"

    @server.prompt
    async def letter(to: str, ctx: Context) -> str:
        """Ask twice."""
        first = await ctx.elicit(f"{to}, first?", str)
        second = await ctx.elicit(f"{to}, second?", str)
        return f"{first.data} {second.data}"

    @server.resource("notes://{day}")
    async def notes(day: str, ctx: Context) -> str:
        """Ask twice."""
        first = await ctx.elicit(f"{day}, first?", str)
        second = await ctx.elicit(f"{day}, second?", str)
        return f"{first.data} {second.data}"

    return server


ELSEWHERE = """
import asyncio, sys
from ekiden import Client, PendingCall

async def never(params):
    raise AssertionError("the answers are given by hand")

async def main():
    pending = PendingCall.from_json(sys.stdin.read())
    (key,) = pending.requests
    answer = {"action": "accept", "content": {"value": pending.requests[key]["params"]["message"]}}
    async with Client(sys.argv[1], elicit=never) as client:
        if pending.method == "tools/call":
            ended = await client.resume(pending, {key: answer})
            said = "" if isinstance(ended, PendingCall) else ended.content[0].text
        elif pending.method == "prompts/get":
            ended = await client.resume_prompt(pending, {key: answer})
            said = "" if isinstance(ended, PendingCall) else ended.messages[0].content.text
        else:
            ended = await client.resume_resource(pending, {key: answer})
            said = "" if isinstance(ended, PendingCall) else ended.contents[0].text
    print(ended.to_json() if isinstance(ended, PendingCall) else said, end="")

asyncio.run(main())
"""


async def elsewhere(url: str, pending: str) -> str:
    """One round in another process; what it has to say."""
    import asyncio

    process = await asyncio.create_subprocess_exec(
        *warm.command("-c", ELSEWHERE, url), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE * 2):
        out, _ = await process.communicate(pending.encode())
    assert process.returncode == 0
    return out.decode()


@pytest.mark.parametrize("what", ["tool", "prompt", "resource"])
async def test_every_round_may_be_taken_by_another_process(what: str) -> None:
    async with served(make_server()) as base:
        url = f"{base}/mcp"
        async with Client(url, elicit=agree) as client:
            pending: Any
            if what == "tool":
                pending = await client.start_tool("twice", {"word": "Grüße"})
            elif what == "prompt":
                pending = await client.start_prompt("letter", {"to": "Grüße"})
            else:
                pending = await client.start_resource("notes://Gr%C3%BC%C3%9Fe")
        assert isinstance(pending, PendingCall)
        again = await elsewhere(url, pending.to_json())
        assert PendingCall.from_json(again).rounds == 2
        assert await elsewhere(url, again) == "Grüße, first? Grüße, second?"


async def test_prompts_and_resources_are_answered_by_the_callbacks_round_by_round() -> None:
    async with Client(make_server(), elicit=agree) as client:
        prompt = await client.start_prompt("letter", {"to": "Ann"})
        while isinstance(prompt, PendingCall):
            prompt = await client.resume_prompt(prompt)
        assert prompt.messages[0].content.text == "yes yes"  # type: ignore[union-attr]
        resource = await client.start_resource("notes://today")
        while isinstance(resource, PendingCall):
            resource = await client.resume_resource(resource)
        assert resource.contents[0].text == "yes yes"  # type: ignore[union-attr]


async def test_a_server_of_2025_answers_a_prompt_and_a_resource_at_once() -> None:
    async with Client(make_server(), elicit=agree, mode="legacy") as client:
        prompt = await client.start_prompt("letter", {"to": "Ann"})
        resource = await client.start_resource("notes://today")
    assert "yes yes" in str(prompt)
    assert "yes yes" in str(resource)


async def test_a_pending_call_is_all_there_is_to_a_call() -> None:
    deed = in_turn(interim({"k": form("?")}, "state"), interim(None, "later"), DONE)
    async with evil({"deed": deed}) as server, Client(server.url, elicit=agree) as client:
        pending = await client.start_tool("deed", {"a": 1.5}, meta={"my/key": 1})
        assert isinstance(pending, PendingCall)
        copy = PendingCall.from_json(pending.to_json())
        assert copy == pending
        waiting = await client.resume(copy)
        assert isinstance(waiting, PendingCall)
        assert (waiting.requests, waiting.state, waiting.rounds, waiting.idle_rounds) == ({}, "later", 2, 1)
        assert isinstance(await client.resume(waiting), CallToolResult)
        sent = [message["params"] for message in server.messages if message["method"] == "tools/call"]
        assert [params["arguments"] for params in sent] == [{"a": 1.5}] * 3
        assert [params["_meta"]["my/key"] for params in sent] == [1, 1, 1]
        assert "inputResponses" not in sent[2]


def written(**changed: Any) -> str:
    """A pending call as text, with some of its fields changed."""
    pending = PendingCall("tools/call", {"name": "t", "arguments": {}}, {}, "state")
    return json.dumps({**json.loads(pending.to_json()), **changed})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "not a pending call"),
        ("[]", "not a pending call"),
        ('{"format": 99}', "another version of ekiden"),
        ('{"format": 1, "method": 5}', "not a pending call"),
        ("nonsense", "not a pending call"),
        ("{\ud800", "not a pending call"),
        (written(params={"name": "t"}), "parameters are malformed"),
        (written(params={"name": "t", "arguments": [1]}), "parameters are malformed"),
        (written(params={"name": "t", "arguments": {}, "_meta": 5}), "parameters are malformed"),
    ],
)
def test_what_is_no_pending_call_is_told(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PendingCall.from_json(text)


async def test_each_kind_is_resumed_by_its_own_method() -> None:
    async with evil({}) as server, Client(server.url) as client:
        with pytest.raises(UsageError, match=r"prompts/get: resume it with resume_prompt\(\)"):
            await client.resume(PendingCall("prompts/get", {"name": "p"}, {}, "s"))
        with pytest.raises(UsageError, match=r"resume_resource\(\)"):
            await client.resume_prompt(PendingCall("resources/read", {"uri": "u://"}, {}, "s"))
        with pytest.raises(UsageError, match=r"resume it with resume\(\)"):
            await client.resume_resource(PendingCall("tools/call", {"name": "t"}, {}, "s"))
        with pytest.raises(UsageError, match="cannot be resumed"):
            await client.resume(PendingCall("tools/list", {}, {}, "s"))
        with pytest.raises(UsageError, match="does not say what it calls"):
            await client.resume(PendingCall("tools/call", {}, {}, "s"))
        assert [message["method"] for message in server.messages] == ["server/discover"]


async def test_the_caps_hold_by_hand_too() -> None:
    deed = answers(interim({"k": form("?")}))
    async with evil({"deed": deed}) as server, Client(server.url, elicit=agree) as client:
        pending = await client.start_tool("deed")
        assert isinstance(pending, PendingCall)
        with pytest.raises(TooManyRounds):
            await client.resume(pending, max_rounds=0)

    async def silence(writer: Any, message: Any) -> None:
        import asyncio

        await asyncio.sleep(3600)

    async with evil({"deed": silence}) as server, Client(server.url) as client:
        with pytest.raises(CallTimeout):
            await client.start_tool("deed", timeout=0.1)
        with pytest.raises(CallTimeout):
            await client.resume(
                PendingCall("tools/call", {"name": "deed", "arguments": {}}, {}, "s"), {}, timeout=0.1
            )


async def test_output_schemas_are_checked_in_every_way_to_a_result() -> None:
    tool = {"name": "deed", "inputSchema": {"type": "object"}, "outputSchema": Sum.model_json_schema()}
    wrong = {**DONE, "structuredContent": {"total": "many"}}
    deed = in_turn(wrong, wrong, interim(None, "s"), wrong, {**DONE}, {**DONE, "isError": True})
    async with evil({"deed": deed}, [tool]) as server, Client(server.url) as client:
        await client.list_tools()
        with pytest.raises(InvalidResult, match="broke its output schema: total"):
            await client.call_tool("deed")
        with pytest.raises(InvalidResult, match="broke its output schema: total"):
            await client.start_tool("deed")
        pending = await client.start_tool("deed")
        assert isinstance(pending, PendingCall)
        with pytest.raises(InvalidResult, match="broke its output schema: total"):
            await client.resume(pending)
        with pytest.raises(InvalidResult, match="gave no structuredContent"):
            await client.start_tool("deed")
        failed = await client.start_tool("deed")
        assert isinstance(failed, CallToolResult)
        assert failed.is_error, "a tool that failed owes no content"


def test_a_pending_call_is_plain_json() -> None:
    pending = PendingCall("tools/call", {"name": "t", "arguments": {}}, {"k": form("?")}, None)
    fields = json.loads(pending.to_json())
    assert fields["format"] == 1
    assert fields["requests"] == {"k": form("?")}
    assert fields["state"] is None
