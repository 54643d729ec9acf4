"""Unmodified servers of two SDKs, served by `ekiden run` with two workers, to each client in each era."""

from typing import Any

import httpx2
import pytest

from ekiden import Client, PendingCall
from tests.carried.conftest import Served
from tests.inside.callers import CALLERS, ROOT
from tests.serving import PATIENCE, call, post, soon

with_each_client = pytest.mark.parametrize("caller", CALLERS)
FORMS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@with_each_client
async def test_tools_are_listed_as_their_server_defines_them(served: Served, caller: str) -> None:
    async with CALLERS[caller](served.url) as client:
        tools = await soon(client.tools())
    add = tools["add"]
    assert (add["title"], add["description"]) == ("Add numbers", "Add two numbers.")
    assert add["annotations"] == {"readOnlyHint": True}
    assert add["_meta"]["team"] == "sums"
    assert add["inputSchema"]["properties"]["b"]["default"] == 2
    assert add["outputSchema"]["properties"]["result"]["type"] == "integer"
    assert [icon["src"] for icon in add.get("icons", ())] == ["https://example.org/add.png"]
    if served.host == "fastmcp":
        assert add["_meta"]["fastmcp"]["tags"] == ["sums"]
    assert "ctx" not in tools["refund"]["inputSchema"]["properties"]
    assert "late" in tools, "what the lifespan registers is there"


@with_each_client
async def test_results_are_those_of_their_server(served: Served, caller: str) -> None:
    async with CALLERS[caller](served.url) as client:
        added = await soon(client.call("add", a=1))
        coerced = await soon(client.call("add", a="4"))
        assert text(await soon(client.call("blocking", word="hi"))) == "HI"
        assert text(await soon(client.call("late"))) == "late"
    assert (text(added), added["structuredContent"]) == ("3", {"result": 3})
    assert text(coerced) == "6", "their servers take a number in a string"


@with_each_client
async def test_a_tool_asks_in_its_body_in_both_eras(served: Served, caller: str) -> None:
    async with CALLERS[caller](served.url) as client:
        result = await soon(client.call("refund", order=caller))
    assert text(result).startswith("accept, accept, open, ")
    assert client.asked == [f"Refund {caller}?", f"Really refund {caller}?"]
    assert client.progress == [1, 3]
    assert client.told == (["working"] if served.host == "mcp" else ["{'msg': 'working', 'extra': None}"])
    assert served.runs(caller) == (3 if "2026" in caller else 1), "each round begins the handler anew"


@with_each_client
async def test_dependencies_ask_and_so_does_the_body(served: Served, caller: str) -> None:
    async with CALLERS[caller](served.url) as client:
        result = await soon(client.call("depends", order="7"))
    if served.host == "mcp":
        assert text(result) == f"True, {ROOT.uri}, accept"
        assert client.asked == ["Ship 7?", "And now?"]
    else:
        assert text(result) == "accept, connection 1, accept", "a shared dependency is made once"
        assert client.asked == ["Ship it?", "And now?"]


@with_each_client
async def test_the_clients_model_and_its_roots_are_asked(served: Served, caller: str) -> None:
    async with CALLERS[caller](served.url) as client:
        assert text(await soon(client.call("trip"))) == f"Nara, {ROOT.uri}"


@with_each_client
async def test_what_is_asked_by_hand_is_answered_in_both_eras(served: Served, caller: str) -> None:
    async with CALLERS[caller](served.url) as client:
        assert text(await soon(client.call("by_hand"))) == "first, accept"
        assert client.asked == ["By hand?"]


@with_each_client
async def test_prompts_and_resources_are_served(served: Served, caller: str) -> None:
    async with CALLERS[caller](served.url) as client:
        prompt = await soon(client.prompt("letter", name="Aiko"))
        (hours,) = (await soon(client.read("shop://hours")))["contents"]
        (order,) = (await soon(client.read("shop://orders/7")))["contents"]
    assert prompt["messages"][0]["content"]["text"] == "Dear Aiko: accept"
    assert (hours["text"], hours["mimeType"]) == ("nine to five", "text/plain")
    assert order["text"] == "order 7 of a shop that is open"


@with_each_client
async def test_a_tool_reads_a_resource_of_its_server(served: Served, caller: str) -> None:
    async with CALLERS[caller](served.url) as client:
        assert text(await soon(client.call("reads"))) == "order 9 of a shop that is open, None"


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_a_tool_sees_the_headers_of_its_request(served: Served, mode: Any) -> None:
    http = httpx2.AsyncClient(headers={"X-Test": "seen"}, timeout=PATIENCE)
    async with http, Client(served.url, mode=mode, http_client=http) as client:
        result = await soon(client.call_tool("reads"))
    assert text(result.model_dump(by_alias=True)).endswith(", seen")


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_prompts_templates_and_completions_are_listed(served: Served, mode: Any) -> None:
    async with Client(served.url, mode=mode) as client:
        (prompt,) = await soon(client.list_prompts())
        (resource,) = await soon(client.list_resources())
        (template,) = await soon(client.list_resource_templates())
        completed = await soon(client.complete(prompt="letter", argument="name", value="A"))
        session = client.session
    assert (prompt.title, [each.name for each in prompt.arguments or ()]) == ("A letter", ["name"])
    assert (resource.title, resource.name) == ("Hours", "hours")
    assert template.uri_template == "shop://orders/{number}"
    assert completed.values == ["Aiko", "Akira"]
    assert session.server_info is not None
    assert (session.server_info["name"], session.server_info["version"]) == ("shop", "7")
    assert session.instructions == "Be kind."


async def test_a_call_goes_on_in_another_worker(served: Served) -> None:
    """Each round has a connection of its own: in sixteen calls some worker takes over from the other."""
    served_by: set[str] = set()
    for number in range(16):
        ended: Any = None
        async with Client(served.url, elicit=_never, mode="modern") as client:
            ended = await soon(client.start_tool("refund", {"order": f"moving-{number}"}))
        while isinstance(ended, PendingCall):
            async with Client(served.url, elicit=_never, mode="modern") as client:
                answers = {key: {"action": "accept", "content": {"ok": True}} for key in ended.requests}
                ended = await soon(client.resume(ended, answers))
        assert text(ended.model_dump(by_alias=True)).startswith("accept, accept, open")
        served_by |= served.processes(f"moving-{number}")
    assert len(served_by) == 2


async def _never(params: Any) -> Any:
    raise AssertionError("the answers are given by hand")


async def test_a_state_is_sealed_with_ekidens_keys(served: Served) -> None:
    message = call("refund", {"order": "sealed"}, **FORMS)
    response = await post(served.url.removesuffix("/mcp"), message)
    asked = response.json()["result"]
    assert asked["resultType"] == "input_required"
    assert asked["requestState"].startswith("ek1.")


@with_each_client
async def test_state_of_a_session_is_kept_as_long_as_the_session(served: Served, caller: str) -> None:
    if served.host == "mcp":
        return  # The official SDK has no such thing.
    async with CALLERS[caller](served.url) as client:
        counts = [text(await soon(client.call("visits"))) for _ in range(2)]
    assert counts == (["1", "2"] if "2025" in caller else ["1", "1"])


@with_each_client
async def test_failures_are_told_in_the_words_of_their_server(served: Served, caller: str) -> None:
    async with CALLERS[caller](served.url) as client:
        told = await soon(client.call("fails", how="told"))
        crashed = await soon(client.call("fails", how="crash"))
        invalid = await soon(client.call("add", a="many"))
    assert told["isError"]
    assert "no such order" in text(told)
    assert crashed["isError"]
    assert "secret" not in text(crashed)
    assert invalid["isError"]
    assert "a" in text(invalid)


async def test_a_client_that_cannot_be_asked_is_told_what_is_missing(served: Served) -> None:
    response = await post(served.url.removesuffix("/mcp"), call("refund", {"order": "silent"}))
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32021)


async def test_a_tool_that_a_tool_registers_is_served(served: Served) -> None:
    async with Client(served.url, mode="legacy") as client:  # A session stays with one worker.
        await soon(client.call_tool("renew"))
        assert "added" in [tool.name for tool in await soon(client.list_tools())]
        result = await soon(client.call_tool("added"))
    assert text(result.model_dump(by_alias=True)) == "added"


def test_what_is_not_carried_is_named_at_the_start(served: Served) -> None:
    assert served.log.count("not carried: custom route /hello: it is not served") == 1
    assert served.log.count("runs anew after each answer") == 1
