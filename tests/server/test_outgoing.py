"""What the server sends, as the author's functions see it, and every message that its middleware sees."""

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

from ekiden import CallNext, Context, InvalidParams, Outcome, Outgoing, Request, SendOn, Server
from tests.acceptance.driving import KEY, Client
from tests.eras.old_client import accepted, call, events, hello, notification, old_client, raw_client, text
from tests.server.tasks.test_legacy import shaken
from tests.serving import call as modern_call
from tests.serving import events as streamed
from tests.serving import exchange, post, served
from tests.serving import notification as modern_notification

YES = {"action": "accept", "content": {"value": True}}


def talkative() -> Server:
    """A server whose tool notifies and asks."""
    server = Server("talk", keys=[KEY])

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.progress(1)
        return str((await ctx.elicit("Sure?", bool, key="sure")).action)

    @server.tool
    async def plain() -> str:
        return "plain"

    return server


def noted(server: Server) -> list[tuple[str, str, str | None]]:
    """What the server sends from now on: kind, method and session."""
    seen: list[tuple[str, str, str | None]] = []

    @server.outgoing
    async def note(message: Outgoing, send: SendOn) -> None:
        kind = "response" if message.is_response else "request" if "id" in message.body else "notification"
        seen.append((kind, message.method, message.session))
        await send(message)

    return seen


async def test_results_and_notifications_of_2026_are_seen_on_every_transport() -> None:
    server = talkative()
    seen = noted(server)
    message = modern_call("tool", progressToken=1)
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {"elicitation": {}}
    async with served(server) as base:
        response = await post(base, message)
        assert [said.get("method") for said in streamed(response.text)] == ["notifications/progress", None]
        assert seen == [("notification", "notifications/progress", None), ("response", "tools/call", None)]
    seen.clear()
    said = await exchange(server, message)
    assert "inputRequests" in said[-1]["result"]
    assert [(kind, method) for kind, method, _ in seen] == [
        ("notification", "notifications/progress"),
        ("response", "tools/call"),
    ]
    (session,) = {session for _, _, session in seen}
    assert session


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
async def test_a_session_of_2025_is_named_with_all_that_is_sent_to_it(version: str) -> None:
    server = talkative()
    seen = noted(server)
    async with served(server) as base, old_client(base, version=version) as client:
        answer = lambda asked: accepted(asked["id"], value=True)  # noqa: E731
        assert text(await client.answered(call("tool", meta={"progressToken": 1}), answer)) == "accept"
        session = client.session
    assert seen == [
        ("response", "initialize", session),
        ("notification", "notifications/progress", session),
        ("request", "elicitation/create", session),
        ("response", "tools/call", session),
    ]


async def test_over_a_channel_a_session_has_a_name_too() -> None:
    server = talkative()
    seen = noted(server)
    async with shaken(server, "2025-11-25") as (client, _):
        client.answers = [YES]
        await client.result("tools/call", name="tool", arguments={})
    assert [(kind, method) for kind, method, _ in seen] == [
        ("response", "initialize"),
        ("request", "elicitation/create"),
        ("response", "tools/call"),
    ]
    (session,) = {session for _, _, session in seen}
    assert session


async def test_changes_outside_of_requests_are_seen() -> None:
    server = talkative()
    seen = noted(server)
    async with served(server) as base, old_client(base) as client, client.listening() as response:
        messages = (event.message async for event in events(response) if event.message is not None)
        first = asyncio.ensure_future(anext(messages))
        async with asyncio.timeout(30):
            while not first.done():  # Until the stream is open.
                server.remove_tool("plain")
                server.add_tool(_progress, name="plain")
                await asyncio.sleep(0.01)
        assert first.result()["method"] == "notifications/tools/list_changed"
    assert set(seen[1:]) == {("notification", "notifications/tools/list_changed", client.session)}


async def test_a_notification_can_be_dropped_and_a_result_changed() -> None:
    server = talkative()

    @server.outgoing
    async def change(message: Outgoing, send: SendOn) -> None:
        if message.method == "notifications/progress":
            return
        if message.is_response:
            message.body["result"]["content"] = [{"type": "text", "text": "changed"}]
        await send(message)

    server.add_tool(_progress, name="progress")
    async with served(server) as base:
        response = await post(base, modern_call("progress", progressToken=1))
        assert response.json()["result"]["content"][0]["text"] == "changed"
        async with old_client(base) as client:
            (said,) = await client.talk(call("progress", meta={"progressToken": 1}))
            assert text(said) == "changed"


async def _progress(ctx: Context) -> str:
    await ctx.progress(1)
    return "done"


async def test_a_limit_on_open_questions_per_session_holds() -> None:
    server = talkative()
    waiting: Counter[str | None] = Counter()

    @server.outgoing
    async def limit(message: Outgoing, send: SendOn) -> None:
        result = message.body.get("result") or {}
        if result.get("resultType") == "input_required":
            waiting[message.session] += 1
            if waiting[message.session] > 1:
                message.body = {
                    "jsonrpc": "2.0",
                    "id": message.body["id"],
                    "error": {"code": -32000, "message": "Too many questions"},
                }
        await send(message)

    async with server.connect() as channel:
        first, second = [modern_call("tool", request_id=number) for number in (1, 2)]
        for message in (first, second):
            message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {"elicitation": {}}
            await channel.send(message)
        async with asyncio.timeout(30):
            answers = sorted([await channel.receive(), await channel.receive()], key=lambda m: "error" in m)
    assert answers[0]["result"]["resultType"] == "input_required"
    assert answers[1]["error"]["message"] == "Too many questions"


async def test_a_changed_result_cannot_ask_what_was_not_declared() -> None:
    server = talkative()

    @server.outgoing
    async def ask(message: Outgoing, send: SendOn) -> None:
        message.body["result"] = {
            "resultType": "input_required",
            "inputRequests": {"roots": {"method": "roots/list"}},
        }
        await send(message)

    error = await Client(server, capabilities={}).refused("plain")
    assert (error.code, error.data) == (-32021, {"requiredCapabilities": {"roots": {}}})


async def test_a_question_that_is_dropped_ends_the_call_at_once() -> None:
    server = talkative()

    @server.outgoing
    async def silent(message: Outgoing, send: SendOn) -> None:
        if message.method != "elicitation/create":
            await send(message)

    async with shaken(server, "2025-11-25") as (client, _):
        result = await client.result("tools/call", name="tool", arguments={})
    assert result["isError"]
    assert result["content"][0]["text"] == "The question was held back by the server"


async def test_a_response_that_is_dropped_ends_the_http_exchange() -> None:
    server = talkative()

    @server.outgoing
    async def silent(message: Outgoing, send: SendOn) -> None:
        if message.method != "tools/call":
            await send(message)

    async with served(server) as base:
        assert (await post(base, modern_call("plain"))).content == b""
        async with old_client(base) as client:
            assert await client.talk(call("plain")) == []


async def test_the_last_registered_sees_a_message_first() -> None:
    server = talkative()
    order: list[str] = []
    for name in ("outer", "inner"):

        def register(name: str = name) -> None:
            @server.outgoing
            async def note(message: Outgoing, send: SendOn) -> None:
                order.append(name)
                await send(message)

        register()
    await Client(server).ask("plain")
    assert order == ["inner", "outer"]


async def test_what_breaks_while_it_looks_is_logged_and_nothing_is_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = talkative()

    @server.outgoing
    async def broken(message: Outgoing, send: SendOn) -> None:
        raise OSError("secret")

    async with served(server, quiet=False) as base:
        with caplog.at_level(logging.ERROR):
            response = await post(base, modern_call("plain"))
    assert response.json()["error"] == {"code": -32603, "message": "Internal error"}
    assert "An outgoing middleware raised on tools/call" in caplog.text


async def cancelled() -> None:
    """As if something that a function awaits was cancelled by others."""
    raise asyncio.CancelledError


RUINS: dict[str, Any] = {
    "id": {"id": 777, "result": {}},
    "no-id": {"result": {}},
    "nothing": {"id": 1},
    "null": None,
    "result": {"id": 1, "result": "text"},
    "error": {"id": 1, "error": {"code": 1}},
    "not-json": {"id": 1, "result": {"content": object()}},
    "questions": {"id": 1, "result": {"resultType": "input_required", "inputRequests": [1]}},
    "question": {
        "id": 1,
        "result": {
            "resultType": "input_required",
            "inputRequests": {"a": {"method": "elicitation/create", "params": "text"}},
        },
    },
}


@pytest.mark.parametrize("body", [*RUINS.values(), cancelled], ids=[*RUINS, "cancelled"])
async def test_a_response_that_was_spoiled_is_an_error_and_not_a_silence(body: Any) -> None:
    server = talkative()

    @server.outgoing
    async def spoil(message: Outgoing, send: SendOn) -> None:
        if message.method == "tools/call":
            if body is cancelled:
                await cancelled()
            message.body = body if body is None else {"jsonrpc": "2.0", **body}
        await send(message)

    (said,) = await exchange(server, modern_call("plain"))
    assert (said["id"], said["error"]) == (1, {"code": -32603, "message": "Internal error"})
    async with served(server) as base, old_client(base) as client:
        (said,) = await client.talk(call("plain"))
    assert said["error"]["code"] == -32603


async def test_a_call_that_is_cancelled_while_a_function_looks_gets_no_response() -> None:
    server = talkative()
    looking = asyncio.Event()

    @server.outgoing
    async def slow(message: Outgoing, send: SendOn) -> None:
        if message.method == "tools/call":
            looking.set()
            await asyncio.sleep(60)
        await send(message)

    async with served(server) as base, old_client(base) as client:
        calling = asyncio.create_task(client.talk(call("plain")))
        async with asyncio.timeout(10):
            await looking.wait()
            async with client.posting(notification("notifications/cancelled", requestId=1)) as taken:
                assert taken.status_code == 202
            assert await calling == []


async def test_a_question_whose_id_was_changed_ends_the_call_at_once() -> None:
    server = talkative()

    @server.outgoing
    async def renumber(message: Outgoing, send: SendOn) -> None:
        if message.method == "elicitation/create":
            message.body["id"] = 777
        await send(message)

    async with shaken(server, "2025-11-25") as (client, _):
        result = await client.result("tools/call", name="tool", arguments={})
    assert result["content"][0]["text"] == "The question was held back by the server"


async def test_a_changed_question_cannot_ask_a_client_of_2025_what_it_did_not_declare() -> None:
    server = talkative()

    @server.outgoing
    async def sample(message: Outgoing, send: SendOn) -> None:
        if message.method == "elicitation/create":
            message.body["method"] = "sampling/createMessage"
            message.body["params"] = {"messages": [], "maxTokens": 1}
        await send(message)

    async with served(server) as base, old_client(base, capabilities={"elicitation": {}}) as client:
        said = await client.talk(call("tool"))
    assert [message.get("method") for message in said] == [None]
    assert said[0]["result"]["content"][0]["text"].startswith("The client's model could not be asked")


# What comes in


def refusing(server: Server, *kinds: str) -> list[tuple[str, str, bool]]:
    """Refuse all messages of these kinds; what came, with whether a session was named."""
    seen: list[tuple[str, str, bool]] = []

    @server.middleware
    async def refuse(request: Request, call_next: CallNext) -> Outcome:
        seen.append((request.kind, request.method, request.session is not None))
        if request.kind in kinds or request.method in kinds:
            raise InvalidParams("not today")
        return await call_next(request)

    return seen


@pytest.mark.parametrize("returned", [None, {"content": []}])
async def test_a_middleware_that_returns_no_outcome_is_an_error_and_not_a_silence(
    returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = talkative()

    @server.middleware
    async def forgetful(request: Request, call_next: CallNext) -> Outcome:
        outcome = await call_next(request)
        result: Outcome = returned if request.method == "tools/call" else outcome
        return result

    (said,) = await exchange(server, modern_call("plain"))
    assert (said["id"], said["error"]["code"]) == (1, -32603)
    async with served(server) as base, old_client(base) as client:
        (said,) = await client.talk(call("plain"))
    assert said["error"]["code"] == -32603
    assert "forgetful" in caplog.text
    assert "must return an outcome" in caplog.text


async def test_a_refused_initialize_opens_no_session() -> None:
    server = talkative()
    seen = refusing(server, "initialize")
    async with served(server) as base, raw_client(base) as client:
        response = await client.http.post(client.url, json=hello(), headers=client.headers)
        assert response.json()["error"] == {"code": -32602, "message": "not today"}
        assert "mcp-session-id" not in response.headers
    assert seen == [("request", "initialize", False)]
    async with server.running(), server.connect() as channel:
        await channel.send(hello())
        assert (await channel.receive())["error"]["message"] == "not today"


async def test_an_initialize_that_is_refused_afterwards_leaves_no_session() -> None:
    server = talkative()

    @server.middleware
    async def refuse(request: Request, call_next: CallNext) -> Outcome:
        await call_next(request)
        raise InvalidParams("not today")

    async with served(server) as base, raw_client(base) as client:
        response = await client.http.post(client.url, json=hello(), headers=client.headers)
        assert response.json()["error"]["message"] == "not today"
        assert len(server.endpoint.sessions) == 0


async def test_a_middleware_may_change_the_welcome() -> None:
    server = talkative()

    @server.middleware
    async def change(request: Request, call_next: CallNext) -> Outcome:
        outcome: Any = await call_next(request)
        if request.method == "initialize":
            outcome.result["instructions"] = "Be kind."
        return outcome  # type: ignore[no-any-return]

    async with served(server) as base, raw_client(base) as client:
        assert (await client.open())["instructions"] == "Be kind."
        assert text(await client.answered(call("plain"))) == "plain"


async def test_every_message_of_a_session_is_seen() -> None:
    server = talkative()
    seen = refusing(server)
    async with served(server) as base, old_client(base) as client:
        await client.answered(call("tool"), lambda asked: accepted(asked["id"], value=True))
        async with client.listening() as response:
            assert response.status_code == 200
        assert (await client.end()).status_code == 200
    assert seen == [
        ("request", "initialize", False),
        ("notification", "notifications/initialized", True),
        ("request", "tools/call", True),
        ("response", "", True),
        ("http", "GET", True),
        ("http", "DELETE", True),
    ]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_get_and_a_delete_can_be_refused(method: str) -> None:
    server = talkative()
    refusing(server, method)
    async with served(server) as base, old_client(base) as client:
        response = await client.http.request(method, client.url, headers=client.headers)
        assert response.status_code == 400
        assert response.json()["error"]["message"] == "not today"
        assert text(await client.answered(call("plain"))) == "plain", "the session goes on"


async def test_a_refused_notification_does_nothing() -> None:
    server = talkative()
    seen = refusing(server, "notification")
    async with served(server) as base, raw_client(base) as client:
        response = await post(base, modern_notification("notifications/cancelled", {"requestId": 1}))
        assert (response.status_code, response.json()["error"]["message"]) == (400, "not today")
        opened = await client.http.post(client.url, json=hello(), headers=client.headers)
        client.session, client.version = opened.headers["mcp-session-id"], "2025-11-25"
        assert (await client.send(notification("notifications/initialized"))).status_code == 400
    assert ("notification", "notifications/cancelled", False) in seen


async def test_over_a_channel_a_refused_cancellation_cancels_nothing() -> None:
    server = Server("s")
    go = asyncio.Event()

    @server.tool
    async def slow() -> str:
        await go.wait()
        return "ended"

    seen = refusing(server, "notification")
    async with server.connect() as channel:
        await channel.send(modern_call("slow", request_id=7))
        await channel.send(modern_notification("notifications/cancelled", {"requestId": 7}))
        go.set()
        async with asyncio.timeout(30):
            assert (await channel.receive())["result"]["content"][0]["text"] == "ended"
    assert ("notification", "notifications/cancelled", True) in seen
