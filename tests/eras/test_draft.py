"""The draft 2026-06-XX: the four combinations of who has opted in, and what goes over the wire."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CreateMessageResult, ElicitResult, TextContent

from ekiden import Client, InvalidResult, PendingCall, Server
from tests import warm
from tests.serving import served

from .handlers import make_server
from .old_client import Message, call, old_client, raw_client, request, text

DRAFT = "2026-06-XX"
HANDLERS = Path(__file__).with_name("handlers.py")


async def elicit(params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ann"})


async def sample(params: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text="hi"), model="m")


@asynccontextmanager
async def connected(
    transport: str, *, server_opted: bool, client_opted: bool
) -> AsyncGenerator[Client, None]:
    """Our client and our server, either of which may have opted in. Without, the client speaks 2025."""
    options: dict[str, Any] = {"elicit": elicit, "sample": sample, "roots": ["file:///work"]}
    if client_opted:
        options["experimental_protocol_version"] = DRAFT
    else:
        options["mode"] = "legacy"
    if transport == "stdio":
        settings = {**os.environ, "DRAFT": DRAFT if server_opted else ""}
        async with Client(warm.command(str(HANDLERS)), env=settings, **options) as client:
            yield client
        return
    server = make_server(experimental_protocol_version=DRAFT if server_opted else None)
    async with served(server) as base, Client(base + "/mcp", **options) as client:
        yield client


def said(result: Any) -> str:
    (block,) = result.content
    words: str = block.text
    return words


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("server_opted", [True, False])
@pytest.mark.parametrize("client_opted", [True, False])
async def test_the_four_combinations_end_alike(
    transport: str, server_opted: bool, client_opted: bool
) -> None:
    both = server_opted and client_opted
    async with connected(transport, server_opted=server_opted, client_opted=client_opted) as client:
        version = DRAFT if both else "2026-07-28" if client_opted else "2025-11-25"
        assert client.session.version == version
        interim = version != "2025-11-25"
        assert said(await client.call_tool("era")) == f"{interim} True False"
        assert said(await client.call_tool("ask")) == "accept Ann"
        assert said(await client.call_tool("ask_three")) == "Ann hi file:///work"
        assert said(await client.call_tool("ask_thrice")) == "Ann Ann Ann"
        assert said(await client.call_tool("manual")) == "Ann Ann 1"
        assert said(await client.call_tool("manual_thread")) == "Ann"
        assert said(await client.call_tool("add", {"a": 1, "b": 2})) == '{"total":3}'
        prompt = await client.get_prompt("ask_prompt")
        assert "Ann" in str(prompt.messages[0].content)
        resource = await client.read_resource("eras://asked/1")
        assert "1 accept" in str(resource.contents[0])


async def test_an_interim_result_is_spelled_as_the_draft_spells_it() -> None:
    async with (
        served(make_server(experimental_protocol_version=DRAFT)) as base,
        old_client(base, version=DRAFT) as client,
    ):
        assert client.version == DRAFT
        (first,) = await client.talk(call("ask", id=1))
        interim = first["result"]
        assert set(interim) == {"result_type", "inputRequests", "requestState"}
        assert interim["result_type"] == "incomplete"
        ((key, asked),) = interim["inputRequests"].items()
        assert asked["method"] == "elicitation/create"
        retry = call("ask", id=2)
        retry["params"] |= {
            "inputResponses": {key: {"action": "accept", "content": {"name": "Ann"}}},
            "requestState": interim["requestState"],
        }
        (second,) = await client.talk(retry)
        assert second["id"] == 2
        assert text(second) == "accept Ann"
        assert not set(second["result"]) & {"result_type", "resultType", "_meta", "ttlMs"}


async def test_a_state_alone_is_an_interim_result_too() -> None:
    async with (
        served(make_server(experimental_protocol_version=DRAFT)) as base,
        old_client(base, version=DRAFT) as client,
    ):
        (first,) = await client.talk(call("endless"))
        assert set(first["result"]) == {"result_type", "requestState"}


async def test_a_state_that_was_tampered_with_is_refused() -> None:
    async with (
        served(make_server(experimental_protocol_version=DRAFT)) as base,
        old_client(base, version=DRAFT) as client,
    ):
        retry = call("ask")
        retry["params"]["requestState"] = "made up"
        (refused,) = await client.talk(retry)
        assert refused["error"]["code"] == -32602


async def test_nothing_is_pushed_to_a_client_of_the_draft() -> None:
    async with (
        served(make_server(experimental_protocol_version=DRAFT)) as base,
        old_client(base, version=DRAFT) as client,
    ):
        seen: list[Message] = []
        for tool in ("ask", "ask_three", "manual", "open_page"):
            seen += await client.talk(call(tool))
        assert [message["result"]["result_type"] for message in seen] == ["incomplete"] * 4


async def test_what_the_client_of_the_draft_did_not_declare_is_a_tool_error() -> None:
    async with (
        served(make_server(experimental_protocol_version=DRAFT)) as base,
        old_client(base, version=DRAFT, capabilities={}) as client,
    ):
        for tool in ("ask", "manual", "declared"):
            (answered,) = await client.talk(call(tool))
            assert answered["result"]["isError"] is True


async def test_without_sessions_the_header_alone_is_enough() -> None:
    server = make_server(experimental_protocol_version=DRAFT, stateless_2025=True)
    async with served(server) as base, raw_client(base) as client:
        client.version = DRAFT
        (first,) = await client.talk(call("manual_thread"))
        assert first["result"]["result_type"] == "incomplete"
        retry = call("manual_thread", id=2)
        retry["params"]["inputResponses"] = {"name": {"action": "accept", "content": {"name": "Ann"}}}
        assert "requestState" not in first["result"]
        assert text((await client.talk(retry))[0]) == "Ann"
        (asked,) = await client.talk(call("ask", id=3))
        assert asked["result"]["result_type"] == "incomplete"
        # Of a client that names another version nothing can be asked without a session.
        client.version = "2025-11-25"
        (refused,) = await client.talk(call("ask", id=4))
        assert refused["result"]["isError"] is True


async def test_our_client_drives_the_draft_without_sessions() -> None:
    server = make_server(experimental_protocol_version=DRAFT, stateless_2025=True)
    options: dict[str, Any] = {"elicit": elicit, "experimental_protocol_version": DRAFT}
    async with served(server) as base, Client(base + "/mcp", **options) as client:
        assert client.session.version == DRAFT
        assert said(await client.call_tool("ask")) == "accept Ann"


async def test_a_server_that_has_not_opted_in_refuses_the_header() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        assert (await client.send(request("ping"), mcp_protocol_version=DRAFT)).status_code == 400


async def test_the_four_questions_of_a_round_are_answered_by_hand_as_well() -> None:
    async with connected("http", server_opted=True, client_opted=True) as client:
        pending = await client.start_tool("ask")
        assert isinstance(pending, PendingCall)
        (key,) = pending.requests
        ended = await client.resume(pending, {key: {"action": "decline"}})
        assert said(ended) == "decline"


async def test_a_client_that_has_opted_in_still_finds_a_server_of_2026(monkeypatch: Any) -> None:
    server = Server("modern")

    @server.tool
    async def one() -> str:
        """One."""
        return "1"

    # A server without the old handshake.
    monkeypatch.setattr("ekiden.transports.server.conversation.is_modern", lambda params: True)
    async with Client(server, experimental_protocol_version=DRAFT) as client:
        assert client.session.version == "2026-07-28"
        assert said(await client.call_tool("one")) == "1"


async def test_what_a_client_was_told_to_speak_says_nothing_to_the_next() -> None:
    async with served(make_server()) as base:
        async with Client(base + "/mcp", mode="legacy") as client:
            assert client.session.version == "2025-11-25"
        async with Client(base + "/mcp", experimental_protocol_version=DRAFT) as client:
            assert client.session.version == "2026-07-28", "better than 2025, where the draft is not spoken"
        async with Client(base + "/mcp") as client:
            assert client.session.version == "2026-07-28"


async def test_an_interim_result_of_the_draft_is_refused_where_it_was_not_agreed_on(
    monkeypatch: Any, wrong_messages: list[str]
) -> None:
    monkeypatch.setattr(
        "ekiden.wire.legacy.Legacy.result",
        lambda self, result: {"result_type": "incomplete", "requestState": "x"},
    )
    async with Client(make_server(), mode="legacy") as client:
        with pytest.raises(InvalidResult, match="must not send interim results"):
            await client.call_tool("add", {"a": 1, "b": 2})
    assert len(wrong_messages) == 1
