"""Handlers that another server has defined, registered in a server of ekiden."""

from typing import Any

import pytest

from ekiden import Client, Context, InputRequired, ProtocolError, RegistrationError, Server
from ekiden.engine import Carrier, answers_by_hand, ask
from tests.serving import soon

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
FORM = {"message": "Go?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **more}


def said(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


async def echo(arguments: dict[str, Any]) -> Any:
    return said(str(arguments))


async def yes(params: Any) -> Any:
    return {"action": "accept", "content": {"ok": True}}


def text(result: Any) -> str:
    return str(result.content[0].text)


async def test_arguments_arrive_as_they_were_sent() -> None:
    server = Server("shop")
    Carrier(server).tools([(tool("echo", title="Echo", _meta={"team": "x"}), echo, False)])
    async with Client(server) as client:
        (listed,) = await soon(client.list_tools())
        assert (listed.title, listed.meta) == ("Echo", {"team": "x"})
        assert text(await soon(client.call_tool("echo", {"x": "7"}))) == "{'x': '7'}"


async def test_what_is_not_given_again_is_removed() -> None:
    server = Server("shop")
    carrier = Carrier(server)
    carrier.tools([(tool("one"), echo, False), (tool("two"), echo, False)])
    carrier.tools([(tool("two", title="Two"), echo, False), (tool("three"), echo, False)])
    async with Client(server) as client:
        assert [(each.name, each.title) for each in await soon(client.list_tools())] == [
            ("two", "Two"),
            ("three", None),
        ]


async def test_a_definition_that_stays_gets_the_new_function() -> None:
    async def other(arguments: dict[str, Any]) -> Any:
        return said("other")

    server = Server("shop")
    carrier = Carrier(server)
    carrier.tools([(tool("one"), echo, False)])
    carrier.tools([(tool("one"), other, False)])
    async with Client(server) as client:
        assert text(await soon(client.call_tool("one"))) == "other"


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_a_question_of_the_wire_is_asked_and_its_result_comes_as_it_is(mode: Any) -> None:
    async def asks(arguments: dict[str, Any], ctx: Context) -> Any:
        return said(str(await ask(ctx, "elicitation/create", {**FORM, "elicitationId": "7"})))

    server = Server("shop")
    Carrier(server).tools([(tool("asks"), asks, True)])
    async with Client(server, elicit=yes, mode=mode) as client:
        assert text(await soon(client.call_tool("asks"))) == "{'action': 'accept', 'content': {'ok': True}}"


async def test_what_is_no_question_is_refused() -> None:
    async def asks(arguments: dict[str, Any], ctx: Context) -> Any:
        return said(str(await ask(ctx, "tools/list", {})))

    server = Server("shop")
    Carrier(server).tools([(tool("asks"), asks, True)])
    async with Client(server) as client:
        with pytest.raises(ProtocolError, match="tools/list is not a question"):
            await soon(client.call_tool("asks"))


async def test_to_look_at_answers_by_hand_does_not_forbid_other_questions() -> None:
    async def either(arguments: dict[str, Any], ctx: Context) -> Any:
        answers, state = answers_by_hand(ctx)
        if arguments["x"] == 1:
            return said(str((await ask(ctx, "elicitation/create", FORM))["action"]))
        if not answers:
            return InputRequired({"q": {"method": "elicitation/create", "params": FORM}}, "kept")
        return said(f"{state} {answers['q']['action']}")

    server = Server("shop")
    Carrier(server).tools([(tool("either"), either, True)])
    async with Client(server, elicit=yes) as client:
        assert text(await soon(client.call_tool("either", {"x": 1}))) == "accept"
        assert text(await soon(client.call_tool("either", {"x": 2}))) == "kept accept"


async def test_templates_are_matched_by_whoever_defined_them() -> None:
    class After:
        """Whatever follows the scheme."""

        def match(self, uri: str) -> dict[str, Any] | None:
            return {"rest": uri.removeprefix("all://")} if uri.startswith("all://") else None

    async def read(arguments: dict[str, Any], ctx: Context) -> Any:
        contents = {"uri": ctx.request.params["uri"], "text": arguments["rest"]}
        return {"contents": [contents], "ttlMs": 0, "cacheScope": "private"}

    async def complete(params: dict[str, Any], ctx: Context) -> Any:
        return {"completion": {"values": [params["ref"]["uri"], params["argument"]["value"]]}}

    server = Server("shop")
    carrier = Carrier(server)
    carrier.templates([({"uriTemplate": "all://{rest}", "name": "all"}, read, After())])
    carrier.completion(complete)
    async with Client(server) as client:
        (part,) = (await soon(client.read_resource("all://a/b"))).contents
        assert part.text == "a/b"  # type: ignore[union-attr]
        completed = await soon(client.complete(resource="all://{rest}", argument="rest", value="a"))
    assert completed.values == ["all://{rest}", "a"]


def test_a_header_that_cannot_be_mirrored_is_refused() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "object", "x-mcp-header": "X"}}}
    with pytest.raises(RegistrationError, match="tool 'one'"):
        Carrier(Server("shop")).tools([({"name": "one", "inputSchema": schema}, echo, False)])
