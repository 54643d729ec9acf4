"""At level INFO and above the log has no tokens, arguments, answers or results, however odd they are."""

import asyncio
import logging
from typing import Any

import pytest
from pydantic import BaseModel, Field

from ekiden import Auth, Context, Principal, Server, StaticTokens
from ekiden.wire.tasks import EXTENSION
from tests.eras.old_client import call as old_call
from tests.eras.old_client import raw_client
from tests.serving import call, post, post_raw, request, served

CANARY = "canary4711"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
FORMS = {CAPABILITIES: {"elicitation": {"form": {}}}}
TASKS = {CAPABILITIES: {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}}
TOKEN = f"good-{CANARY}"


class Size(BaseModel):
    size: str = Field(max_length=3)


def careless() -> Server:
    """A server whose handlers go wrong in many ways."""
    auth = Auth("http://localhost/mcp", verifier=StaticTokens({TOKEN: Principal("zoe", "idp", "agent")}))
    server = Server("careless", auth=auth, store="memory:", keys=[b"k" * 32], record=True)

    async def secret(text: str) -> str:
        return f"{text} {CANARY}"

    @server.tool(task="optional")
    async def ask(text: str, ctx: Context) -> str:
        await ctx.step(secret, text)
        answer = await ctx.elicit(f"Is it {text}?", Size, key="size")
        return f"{answer.action} {CANARY}"

    @server.tool
    async def number(count: int) -> dict[str, int]:
        return {"count": count}

    @server.tool
    async def fails(text: str) -> str:
        raise RuntimeError("This tool fails")

    @server.tool
    async def odd(text: str) -> int:
        return text  # type: ignore[return-value]

    @server.tool(output_schema={"type": "object", "properties": {"count": {"type": "integer"}}})
    async def odder(text: str) -> dict[str, str]:
        return {"count": text}

    @server.prompt
    async def letter(name: str) -> str:
        raise RuntimeError("This prompt fails")

    @server.completion(prompt="letter", argument="name")
    async def names(value: str) -> list[str]:
        raise RuntimeError("This completion fails")

    return server


def bad_calls() -> list[dict[str, Any]]:
    """Requests with the canary in each place where a client can put it."""
    completion = {"ref": {"type": "ref/prompt", "name": "letter"}}
    return [
        call("ask", {"text": CANARY, "more": CANARY}, **FORMS),
        call("ask", {"text": {"deep": CANARY}}, **FORMS),
        call("number", {"count": CANARY}),
        call("fails", {"text": CANARY}),
        call("odd", {"text": CANARY}),
        call("odder", {"text": CANARY}),
        request("prompts/get", {"name": "letter", "arguments": {"name": CANARY}}),
        request("prompts/get", {"name": "letter", "arguments": {CANARY: CANARY}}),
        request("completion/complete", {**completion, "argument": {"name": "name", "value": CANARY}}),
        request("tools/call", {"name": "ask", "arguments": {"text": "x"}, "requestState": CANARY}, **FORMS),
        request("tools/call", {"name": "ask", "arguments": {"text": "x"}, "inputResponses": CANARY}, **FORMS),
        request("tools/list", {"cursor": CANARY}),
        request("subscriptions/listen", {"notifications": CANARY}),
        request("tasks/get", {"taskId": "none", "more": CANARY}, **TASKS),
    ]


def answers() -> list[Any]:
    """Answers that do not fit, each in another way."""
    return [
        {"action": "accept", "content": {"size": CANARY}},
        {"action": "accept", "content": {CANARY: CANARY}},
        {"action": "accept", "content": {"size": [CANARY]}},
        {"action": "accept", "content": CANARY},
        {"action": CANARY},
        CANARY,
    ]


async def in_rounds(base: str) -> None:
    allowed = {"authorization": f"Bearer {TOKEN}"}
    for message in bad_calls():
        await post(base, message, **allowed)
    for answer in answers():
        asked = (await post(base, call("ask", {"text": CANARY}, **FORMS), **allowed)).json()["result"]
        more = {"requestState": asked["requestState"], "inputResponses": {"size": answer}}
        again = {"name": "ask", "arguments": {"text": CANARY}, **more}
        await post(base, request("tools/call", again, **FORMS), **allowed)
        again["arguments"] = {"text": "another"}
        await post(base, request("tools/call", again, **FORMS), **allowed)


async def in_a_task(base: str) -> None:
    allowed = {"authorization": f"Bearer {TOKEN}"}
    made = (await post(base, call("ask", {"text": CANARY}, **TASKS), **allowed)).json()["result"]["taskId"]
    about: dict[str, str] = {**allowed, "mcp_name": made}
    for number, answer in enumerate([*answers(), {"action": "decline"}], 1):
        async with asyncio.timeout(60):
            look = request("tasks/get", {"taskId": made}, **TASKS)
            while f"size.{number}" not in (await post(base, look, **about)).text:
                await asyncio.sleep(0.01)
        given = {"taskId": made, "inputResponses": {f"size.{number}": answer}}
        await post(base, request("tasks/update", given, **TASKS), **about)


async def with_bad_credentials(base: str) -> None:
    message = call("number", {"count": 1})
    for header in (f"Bearer bad-{CANARY}", f"DPoP {TOKEN}", f"Basic {CANARY}", f"Bearer {CANARY} {CANARY}"):
        await post(base, message, authorization=header)
        await post(base, message, authorization=header, dpop=f"{CANARY}.{CANARY}.{CANARY}")
    await post(base, message, path=f"/mcp?access_token={CANARY}")
    await post_raw(base, f'{{"jsonrpc": {CANARY}'.encode(), {"authorization": f"Bearer {TOKEN}"})


def saying(answer: Any) -> Any:
    """What answers a question of the server so."""
    return lambda asked: {"jsonrpc": "2.0", "id": asked["id"], "result": answer}


async def as_in_2025(base: str) -> None:
    async with raw_client(base) as client:
        client.more = {"authorization": f"Bearer {TOKEN}"}
        await client.open(capabilities={"elicitation": {}})
        for tool, given in (("number", "count"), ("fails", "text"), ("odd", "text"), ("odder", "text")):
            await client.ask("tools/call", {"name": tool, "arguments": {given: CANARY}})
        for answer in answers():
            await client.talk(old_call("ask", text=CANARY), saying(answer), saying({"action": "decline"}))


WAYS = [in_rounds, in_a_task, with_bad_credentials, as_in_2025]


@pytest.mark.parametrize("mounted", [False, True], ids=["our own HTTP", "any ASGI server"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_no_secret_of_a_client_is_logged(
    way: Any, mounted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with served(careless(), mounted=mounted, quiet=False) as base:
        await way(base)
    ours = [record for record in caplog.records if not record.name.startswith("httpx")]
    assert [record.getMessage() for record in ours if CANARY in record.getMessage()] == []
    traces = [record.exc_text or "" for record in ours]
    assert [text for text in traces if CANARY in text] == []
