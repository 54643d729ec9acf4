"""`ctx.ask`: questions in the words of the protocol."""

from typing import Any

import pytest

from ekiden import Client, Context, Server

FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
QUESTION = {"method": "elicitation/create", "params": {"message": "How many?", "requestedSchema": FORM}}


def _server(question: Any) -> Server:
    server = Server("s", keys=[bytes(range(32))])

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        return str(await ctx.ask(question))

    return server


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_the_answer_comes_as_the_client_gave_it(mode: Any) -> None:
    async def elicit(params: Any) -> Any:
        return {"action": "accept", "content": {"n": 3}}

    async with Client(_server(QUESTION), mode=mode, elicit=elicit) as client:
        (block,) = (await client.call_tool("ask")).content
        assert block.text == "{'action': 'accept', 'content': {'n': 3}}"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "question", [{"method": "tools/call"}, {"method": "roots/list", "params": "all"}, {}]
)
async def test_what_is_not_a_question_is_refused(question: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with Client(_server(question)) as client:
        assert (await client.call_tool("ask")).is_error
    assert "ctx.ask() takes a request of elicitation/create, sampling/createMessage" in caplog.text
