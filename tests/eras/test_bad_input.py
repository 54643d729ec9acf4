"""What clients of 2025 get wrong, and what they must not get hold of."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ekiden import Client, Server, SessionLimits
from ekiden.server.legacy.sessions import Session
from ekiden.transports.server.legacy.events import EventStream
from ekiden.transports.server.legacy.post import Post
from ekiden.wire.incoming import Incoming
from ekiden.wire.jsonrpc import parse
from tests.serving import request as modern_request
from tests.serving import served, soon

from .handlers import make_server
from .old_client import (
    ACCEPT,
    Message,
    OldClient,
    accepted,
    call,
    events,
    hello,
    notification,
    old_client,
    raw_client,
    request,
    text,
)

MODERN = {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}


async def test_a_modern_request_with_a_session_header_is_served_as_modern() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        for session in (client.session or "", "made up"):
            headers = {**MODERN, "mcp-session-id": session}
            answered = await client.http.post(client.url, json=modern_request("tools/list"), headers=headers)
            assert answered.json()["result"]["resultType"] == "complete"
            assert "mcp-session-id" not in answered.headers


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_request_of_2025_without_a_session_is_a_400(version: str) -> None:
    async with served(make_server()) as base, raw_client(base) as client:
        answered = await client.send(request("tools/list"), mcp_protocol_version=version)
        assert answered.status_code == 400
        assert "Mcp-Session-Id" in answered.text
        assert (await client.send(notification("notifications/initialized"))).status_code in (202, 400)


async def test_a_request_of_no_version_and_no_session_is_a_400() -> None:
    async with served(make_server()) as base, raw_client(base) as client:
        assert (await client.send(request("tools/list"))).status_code == 400
        assert (await client.send(accepted(1, name="x"))).status_code == 400


@pytest.mark.parametrize("session", ["made up", "x" * 5000, "..", "%00", "0"])
async def test_a_session_that_does_not_exist_is_a_404(session: str) -> None:
    async with served(make_server()) as base, raw_client(base) as client:
        assert (await client.send(request("tools/list"), mcp_session_id=session)).status_code == 404
        client.session = session
        assert (await client.end()).status_code == 404
        async with client.listening() as response:
            assert response.status_code == 404


@pytest.mark.parametrize("version", ["2099-01-01", "2026-06-XX", "1", "2025-11-25,2025-06-18"])
async def test_a_version_that_nobody_speaks_is_a_400(version: str) -> None:
    async with served(make_server()) as base, old_client(base) as client:
        assert (await client.send(request("ping"), mcp_protocol_version=version)).status_code == 400
        assert (await client.ask("ping"))["result"] == {}


async def test_a_session_does_not_need_the_version_header() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        client.version = ""
        assert (await client.ask("ping"))["result"] == {}


async def test_initialize_twice_is_an_error_and_the_session_goes_on() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        again = await client.send(hello())
        assert again.json()["error"]["code"] == -32600
        assert "mcp-session-id" not in again.headers
        assert (await client.ask("ping"))["result"] == {}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"protocolVersion": 1, "capabilities": {}, "clientInfo": {}},
        {"protocolVersion": "2025-11-25", "clientInfo": {}},
        {"protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": {}},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": "me"},
    ],
)
async def test_a_malformed_initialize_makes_no_session(params: Message) -> None:
    server = make_server()
    async with served(server) as base, raw_client(base) as client:
        answered = await client.send(request("initialize", params))
        assert answered.json()["error"]["code"] == -32602
        assert "mcp-session-id" not in answered.headers
        assert len(server.endpoint.sessions) == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"[" * 5000, -32700),
        (b'"text"', -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"error":"no"}', -32600),
    ],
)
async def test_what_is_no_message_is_a_400(body: bytes, code: int) -> None:
    async with served(make_server()) as base, old_client(base) as client:
        answered = await client.http.post(client.url, content=body, headers=client.headers)
        assert (answered.status_code, answered.json()["error"]["code"]) == (400, code)
        assert (await client.ask("ping"))["result"] == {}


# Batches


async def test_a_batch_is_answered_in_march_2025() -> None:
    batch = [
        request("ping", id=1),
        notification("notifications/initialized"),
        call("add", id="two", a=1, b=2),
        {"jsonrpc": "2.0", "id": 3},
        request("no/such", id=4),
    ]
    async with served(make_server()) as base, old_client(base, version="2025-03-26") as client:
        answered = (await client.send(batch)).json()
        assert isinstance(answered, list)
        by_id = {response.get("id"): response for response in answered}
        assert by_id[1]["result"] == {}
        assert json.loads(text(by_id["two"])) == {"total": 3}
        assert by_id[3]["error"]["code"] == -32600
        assert by_id[4]["error"]["code"] == -32601
        only_notes = await client.send([notification("notifications/initialized")] * 2)
        assert (only_notes.status_code, only_notes.content) == (202, b"")
        assert (await client.send([])).status_code == 400
        assert (await client.send([request("ping", id=n) for n in range(101)])).status_code == 400


async def test_a_batch_that_streams_ends_when_all_are_answered() -> None:
    async with served(make_server()) as base, old_client(base, version="2025-03-26") as client:
        said = await client.talk([call("tell", id=1, meta={"progressToken": 1}), request("ping", id=2)])  # type: ignore[arg-type]
        ids = [message["id"] for message in said if "id" in message]
        assert sorted(ids) == [1, 2]
        assert [m["method"] for m in said if "method" in m].count("notifications/progress") == 2


async def test_a_batch_on_a_channel_is_answered_as_one() -> None:
    async with make_server().connect() as channel:
        await channel.send(hello("2025-03-26"))
        await channel.receive()
        await channel.send(json.dumps([request("ping", id=1), request("ping", id=2)]).encode())
        answered: Any = json.loads(await channel.receive_bytes())
        assert sorted(response["id"] for response in answered) == [1, 2]


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
async def test_later_versions_have_no_batches(version: str) -> None:
    async with served(make_server()) as base, old_client(base, version=version) as client:
        answered = await client.send([request("ping")])
        assert (answered.status_code, answered.json()["error"]["code"]) == (400, -32600)


# Answers


async def test_a_response_to_a_request_never_made_is_taken_and_dropped() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        for number in (1, 999, "x", -1):
            assert (await client.send(accepted(number, name="Eve"))).status_code == 202
        seen: list[Message] = []

        def answer(message: Message) -> Message:
            seen.append(message)
            return accepted(message["id"], name="Ann")

        assert text(await client.answered(call("ask"), answer)) == "accept Ann"


async def test_of_two_answers_the_first_counts() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        numbers: list[Any] = []

        def twice(message: Message) -> Message:
            numbers.append(message["id"])
            return accepted(message["id"], name="Ann")

        assert text(await client.answered(call("ask"), twice)) == "accept Ann"
        assert (await client.send(accepted(numbers[0], name="Eve"))).status_code == 202
        assert (await client.ask("ping"))["result"] == {}


async def test_nobody_answers_or_cancels_for_another_session() -> None:
    async with served(make_server()) as base, old_client(base) as ann, old_client(base) as eve:
        async with ann.posting(call("ask", id=7)) as response:
            heard = aiter(events(response))
            asked = None
            while asked is None:
                asked = (await soon(anext(heard))).message
            # The same ids exist in Eve's session, but mean nothing there.
            assert (await eve.send(accepted(asked["id"], name="Eve"))).status_code == 202
            assert (await eve.send(notification("notifications/cancelled", requestId=7))).status_code == 202
            await asyncio.sleep(0.05)
            await ann.send(accepted(asked["id"], name="Ann"))
            answered = (await soon(anext(heard))).message
        assert answered is not None
        assert text(answered) == "accept Ann"


async def test_an_id_in_use_is_refused_in_its_session_and_free_in_another() -> None:
    waiting = call("wait", id=5, meta={"progressToken": 1})
    async with (
        served(make_server()) as base,
        old_client(base) as one,
        old_client(base) as other,
        one.posting(waiting) as response,
    ):
        await soon(anext(aiter(events(response))))
        again = await one.send(request("ping", id=5))
        assert again.json()["error"]["code"] == -32600
        assert (await other.send(request("ping", id=5))).json()["result"] == {}
        await one.send(notification("notifications/cancelled", requestId=5))


# Whose session it is


def guarded_server(**options: Any) -> Server:
    def who(request: Any) -> str | None:
        name: bytes = request.headers.get(b"authorization", b"")
        return name.decode() or None

    return make_server(principal=who, **options)


async def test_a_session_is_of_the_principal_who_opened_it() -> None:
    async with served(guarded_server()) as base, raw_client(base) as ann, raw_client(base) as eve:
        ann.more = {"authorization": "Ann"}
        await ann.open()
        eve.session, eve.version = ann.session, ann.version
        for stranger in ({"authorization": "Eve"}, {}):
            eve.more = stranger
            assert (await eve.send(request("tools/list"))).status_code == 404
            assert (await eve.send(accepted(1, name="Eve"))).status_code == 404
            assert (await eve.end()).status_code == 404
            async with eve.listening() as response:
                assert response.status_code == 404
        assert (await ann.ask("ping"))["result"] == {}


@pytest.mark.parametrize("verb", ["GET", "DELETE", "POST"])
async def test_the_host_and_the_origin_are_checked_for_every_method(verb: str) -> None:
    async with served(make_server()) as base, old_client(base) as client:
        evil = {**client.headers, "origin": "https://evil.example"}
        answered = await client.http.request(verb, client.url, headers=evil, json=request("ping"))
        assert answered.status_code == 403
        evil = {**client.headers, "host": "evil.example"}
        assert (await client.http.request(verb, client.url, headers=evil)).status_code == 421
        assert (await client.ask("ping"))["result"] == {}


# Its end


async def test_a_session_that_was_deleted_is_gone_and_what_ran_in_it_is_cancelled() -> None:
    server = make_server()
    async with served(server) as base, old_client(base) as client:
        async with (
            client.posting(call("wait", meta={"progressToken": 1})) as response,
            client.listening() as other,
        ):
            heard, also_heard = aiter(events(response)), aiter(events(other))
            await soon(anext(heard))
            await soon(anext(also_heard))
            assert (await client.end()).status_code == 200
            assert [event.message async for event in heard if "result" in (event.message or {})] == []
            assert [event async for event in also_heard] == []
        assert (await client.send(request("ping"))).status_code == 404
        assert (await client.end()).status_code == 404
        assert len(server.endpoint.sessions) == 0


async def test_a_session_that_nobody_uses_ends() -> None:
    server = make_server(sessions=SessionLimits(idle_seconds=0.5))
    async with (
        served(server) as base,
        old_client(base) as idle,
        old_client(base) as busy,
        busy.listening() as response,
    ):
        assert response.status_code == 200
        async with asyncio.timeout(10):
            while len(server.endpoint.sessions) > 1:
                await asyncio.sleep(0.05)
        assert (await idle.send(request("ping"))).status_code == 404
        assert (await busy.ask("ping"))["result"] == {}


async def test_there_are_not_more_sessions_than_allowed() -> None:
    server = make_server(sessions=SessionLimits(sessions=3))
    async with served(server) as base, raw_client(base) as client:
        opened = [(await client.send(hello())).status_code for _ in range(5)]
        assert opened == [200, 200, 200, 503, 503]


async def test_where_there_are_too_many_the_one_longest_unused_makes_room() -> None:
    server = make_server(sessions=SessionLimits(sessions=2, busy_seconds=0))
    async with served(server) as base, old_client(base) as first, old_client(base) as second:
        await first.ask("ping")
        async with old_client(base) as third:
            assert (await second.send(request("ping"))).status_code == 404
            assert (await first.ask("ping"))["result"] == {}
            assert (await third.ask("ping"))["result"] == {}


async def test_nobody_takes_the_sessions_of_others() -> None:
    server = guarded_server(sessions=SessionLimits(per_principal=2))
    async with served(server) as base, raw_client(base) as ann, raw_client(base) as eve:
        ann.more, eve.more = {"authorization": "Ann"}, {"authorization": "Eve"}
        assert [(await eve.send(hello())).status_code for _ in range(4)] == [200, 200, 503, 503]
        await ann.open()
        assert (await ann.end()).status_code == 200
        for _ in range(5):
            await ann.open()
            assert (await ann.end()).status_code == 200
            ann.session, ann.version = None, ""
        nobody = [(await raw.send(hello())).status_code async for raw in _raw_clients(base, 4)]
        assert nobody == [200] * 4, "who has no name is not told apart"


async def test_of_ones_own_sessions_the_one_longest_unused_makes_room() -> None:
    server = guarded_server(sessions=SessionLimits(per_principal=1, busy_seconds=0))
    async with served(server) as base, raw_client(base) as first, raw_client(base) as second:
        for client in (first, second):
            client.more = {"authorization": "Ann"}
            await client.open()
        assert (await first.send(request("ping"))).status_code == 404
        assert (await second.ask("ping"))["result"] == {}


async def _raw_clients(base: str, count: int) -> AsyncIterator[OldClient]:
    for _ in range(count):
        async with raw_client(base) as client:
            yield client


def no_stream() -> EventStream:
    raise AssertionError("nothing is streamed")


async def test_a_request_that_arrives_with_the_end_of_its_session_is_not_run() -> None:
    """Both in one pass of the loop: the request is taken, and before its turn the session ends."""
    server = make_server()
    opening, message = (parse(json.dumps(sent).encode()) for sent in (hello(), call("wait")))
    arrived = Incoming("POST", "/mcp", {}, None, b"")
    session, _ = await server.endpoint.sessions.open(opening, arrived)
    post = Post(no_stream, lambda held, size: None, can_stream=False)
    answering = asyncio.create_task(session.answer(message, arrived, post))
    session.end()
    assert b"session has ended" in await soon(answering)


async def test_a_client_whose_session_has_ended_begins_a_new_one() -> None:
    server = make_server()
    async with served(server) as base, Client(base + "/mcp", mode="legacy") as client:
        await client.list_tools()
        server.endpoint.sessions.close()
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"total": 3}


# Memory


async def whole_life(client: OldClient) -> None:
    """Open a session, call, be asked, listen a little, and end it."""
    client.session, client.version = None, ""
    await client.open()
    await client.answered(call("ask"), lambda m: accepted(m["id"], name="Ann"))
    await client.ask("resources/subscribe", {"uri": "eras://paper"})
    async with client.listening() as response:
        await anext(aiter(events(response)))
    assert (await client.end()).status_code == 200


async def short_life(application: Any) -> None:
    """Open a session and end it, without a socket in between."""
    opened = await exchanged(application, "POST", [], json.dumps(hello()).encode())
    assert opened["status"] == 200
    session = dict(opened["headers"])[b"mcp-session-id"]
    assert (await exchanged(application, "DELETE", [(b"mcp-session-id", session)], b""))["status"] == 200


async def exchanged(application: Any, method: str, headers: list[tuple[bytes, bytes]], body: bytes) -> Any:
    """The start of the response to one request."""
    sent: list[Any] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    async def send(event: Message) -> None:
        sent.append(event)

    common = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": "/mcp", "headers": [*common, *headers]}
    await application(scope, receive, send)
    return sent[0]


def sessions_alive() -> int:
    gc.collect()
    return sum(isinstance(thing, Session) for thing in gc.get_objects())


async def test_a_thousand_sessions_leave_no_memory_behind() -> None:
    of_others = sessions_alive()  # Of tests before this one, which their failures or fixtures may hold.
    server = make_server()
    application = server.asgi()
    async with served(application) as base, raw_client(base, seconds=120) as client:
        for _ in range(10):
            await whole_life(client)
            await short_life(application)
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.take_snapshot()
            for _ in range(20):
                await whole_life(client)
            for _ in range(980):
                await short_life(application)
            await asyncio.sleep(0.1)  # What was cancelled ends with the next passes of the loop.
            gc.collect()
            after = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
        ours = (tracemalloc.Filter(True, "*/ekiden/*"),)
        grown = sum(
            difference.size_diff
            for difference in after.filter_traces(ours).compare_to(before.filter_traces(ours), "filename")
        )
        assert len(server.endpoint.sessions) == 0
        assert sessions_alive() <= of_others
        assert grown < 64 * 1024, f"{grown} bytes are left of a thousand sessions"


async def test_sessions_that_are_dropped_without_a_word_leave_none_either() -> None:
    of_others = sessions_alive()
    server = make_server(sessions=SessionLimits(idle_seconds=0.5))
    async with served(server) as base, raw_client(base) as client:
        for _ in range(200):
            assert (await client.send(hello())).status_code == 200
        async with asyncio.timeout(10):
            while len(server.endpoint.sessions):
                await asyncio.sleep(0.05)
        assert sessions_alive() <= of_others


async def test_a_principal_may_have_any_name() -> None:
    server = make_server(principal=lambda request: "Zoë")
    async with served(server) as base, old_client(base) as client:
        assert (await client.ask("ping"))["result"] == {}


# What one session may take


async def test_a_session_remembers_no_endless_uris() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        refused = await client.ask("resources/subscribe", {"uri": "memo://" + "x" * 1_000_000})
        assert refused["error"]["code"] == -32602
