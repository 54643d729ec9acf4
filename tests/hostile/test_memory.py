"""What a client says about itself, and what it subscribes to, is remembered only in part."""

import asyncio
import contextlib
import json
import sys
import tracemalloc
from typing import Any

import psutil
import pytest

from ekiden import HttpLimits, Server
from ekiden.errors import InternalError, InvalidParams
from ekiden.server.subscriptions import Filter, Hub, read_filter
from ekiden.transports.server.budget import weight_of
from ekiden.transports.server.legacy.room import RequestRoom
from ekiden.transports.server.shares import Shares
from ekiden.wire.handshake import read_hello
from ekiden.wire.incoming import Incoming
from ekiden.wire.json import decode, encode, extract
from tests.serving import (
    PATIENCE,
    RawClient,
    call,
    headers_for,
    post_raw,
    raw_client,
    request,
    served,
    soon,
    spawned,
)

_RUN = """
import sys
from ekiden import HttpLimits, Server
server = Server("run", version="1")
@server.resource("x://{name}")
async def thing(name: str) -> str:
    "A thing."
    return name
server.run("http", port=int(sys.argv[1]))
"""


def _megabytes(process: psutil.Process) -> float:
    return process.memory_info().rss / 1e6


# Sessions of 2025


def _hello(capabilities: Any, info: Any) -> dict[str, Any]:
    return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}


def test_what_clients_say_of_themselves_is_remembered_as_it_is() -> None:
    capabilities = {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}, "context": {}},
        "roots": {"listChanged": True},
        "tasks": {
            "cancel": {},
            "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}},
        },
        "experimental": {"vendor/thing": {"a": [1, 2, 3]}},
    }
    info = {"name": "client", "version": "1", "title": "A client", "websiteUrl": "https://client.example"}
    hello = read_hello(_hello(capabilities, info))
    assert (hello.capabilities, hello.client_info) == (capabilities, info)


def test_what_is_too_much_is_left_out_and_the_rest_is_remembered() -> None:
    junk = [[]] * 20_000
    capabilities = {
        "first": junk,
        "elicitation": {"form": {}, "junk": junk},
        "tasks": {"requests": {"elicitation": {"create": {}, "junk": "x" * 1_000_000}}},
        "sampling": {},
        "x" * 1_000_000: {},
        "last": {},
    }
    hello = read_hello(
        _hello(capabilities, {"icons": [{"src": "data:" + "a" * 1_000_000}], "name": "client"})
    )
    assert hello.client_info == {"name": "client"}
    assert hello.capabilities == {
        "elicitation": {"form": {}},
        "tasks": {"requests": {"elicitation": {"create": {}}}},
        "sampling": {},
    }


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"b": {"c": {"d": {"e": {"f": "x" * 100_000}}}}}},
        {str(n): {} for n in range(40_000)},
        {str(n): [[]] * 100 for n in range(100)},
        {"a": {str(n): {"b": "x" * 1000} for n in range(1000)}},
        {"": "x" * 100_000},
    ],
)
def test_an_extract_never_takes_more_than_it_may(value: dict[str, Any]) -> None:
    text = encode(extract(value, 10_000))
    assert len(text) <= 10_000
    assert text.count(b",") + text.count(b"[") + text.count(b"{") <= 10_000 / 64


async def test_sessions_hold_little_of_what_their_clients_said() -> None:
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": _hello({"x": [[]] * 12_000}, {"name": "x" * 3_000_000, "y": [[]] * 12_000}),
        }
    ).encode()
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    async with spawned(_RUN, forked=False) as server:
        process = psutil.Process(server.process.pid)
        for _ in range(5):
            await post_raw(server.base, body, headers)
        before = _megabytes(process)
        for _ in range(40):
            response = await post_raw(server.base, body, headers)
            assert "mcp-session-id" in response.headers
        assert _megabytes(process) - before < 50  # 190, before; all of it for half an hour.


async def test_a_session_watches_a_bounded_number_of_bytes() -> None:
    server = Server("s", version="1")

    @server.resource("x://{name}")
    async def thing(name: str) -> str:
        """A thing."""
        return name

    refused: dict[str, Any] = {}
    async with server.connect() as channel:
        await channel.send(
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _hello({}, {"name": "c"})}
        )
        await channel.receive()
        for number in range(200):
            params = {"uri": f"x://{number}" + "a" * 2000}
            await channel.send(
                {"jsonrpc": "2.0", "id": number, "method": "resources/subscribe", "params": params}
            )
            answer = await channel.receive()
            if "error" in answer:
                refused = answer["error"]
                break
    assert refused["code"] == -32602
    assert number < 70


# Subscriptions


def _wanted(**notifications: Any) -> dict[str, Any]:
    return {"notifications": notifications}


def test_what_is_subscribed_to_is_bounded_in_number_length_and_bytes() -> None:
    fine = [f"x://{number}/" + "a" * 100 for number in range(1000)]
    assert read_filter(_wanted(resourceSubscriptions=fine)).resources == tuple(fine)
    for wrong in ([*fine, "x://one-more"], ["x://" + "a" * 2048], ["\0" * 400], ["é" * 2048]):
        with pytest.raises(InvalidParams):
            read_filter(_wanted(resourceSubscriptions=wrong))
    with pytest.raises(InvalidParams, match="131072 bytes"):
        read_filter(_wanted(resourceSubscriptions=[f"{number:04}" + "a" * 1000 for number in range(500)]))
    with pytest.raises(InvalidParams, match="task ids"):
        read_filter(_wanted(taskIds=["a" * 5000]))


async def test_one_client_cannot_take_the_room_of_all() -> None:
    hub = Hub()
    large = Filter((), tuple(f"x://{number}/" + "a" * 100 for number in range(1000)))
    opened = [hub.open(large, "greedy") for _ in range(16 * 1024 * 1024 // large.size())]
    with pytest.raises(InternalError, match="your subscriptions"):
        hub.open(large, "greedy")
    hub.open(large, "modest")
    hub.open(Filter(("toolsListChanged",), ()), "greedy")
    hub.close(opened.pop())
    opened.append(hub.open(large, "greedy"))


async def test_all_clients_together_have_bounded_room_and_lists_are_free() -> None:
    hub = Hub()
    large = Filter((), tuple(f"x://{number}/" + "a" * 100 for number in range(1000)))
    opened = [hub.open(large, f"client {n}") for n in range(64 * 1024 * 1024 // large.size())]
    with pytest.raises(InternalError, match="Too many subscriptions"):
        hub.open(large, "one more")
    hub.open(Filter(("toolsListChanged",), ()), "another")
    for subscription in (*opened, *opened):
        hub.close(subscription)
    hub.open(large, "another")


def _listen(number: int, **more: Any) -> tuple[dict[str, str], bytes]:
    params = _wanted(toolsListChanged=True)
    if "padding" in more:
        params["padding"] = more["padding"]
    message = request("subscriptions/listen", params, request_id=number)
    if "capabilities" in more:
        message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = more["capabilities"]
    if "outside" in more:
        message["outside"] = more["outside"]
    body = json.dumps(message).encode()
    return headers_for(message) | {"content-length": str(len(body))}, body


async def _open(client: RawClient, head: dict[str, str], body: bytes) -> None:
    await client.send_head(head)
    client.writer.write(body)
    await client.read_until(b"subscriptions/acknowledged")


@pytest.mark.parametrize(
    "more",
    [
        {"padding": "a" * 4_000_000},
        {"padding": [[]] * 24_000},
        {"capabilities": {"x": [[]] * 12_000, "y": "a" * 3_000_000}},
        {"outside": "a" * 4_000_000},
    ],
)
async def test_a_subscription_holds_little_of_its_request(more: dict[str, Any]) -> None:
    async with spawned(_RUN, forked=False) as server, contextlib.AsyncExitStack() as stack:
        process = psutil.Process(server.process.pid)
        measured: list[float] = []
        for number in range(40):
            client = await stack.enter_async_context(raw_client(server.base))
            await _open(client, *_listen(number, **more))
            measured.append(_megabytes(process))
        assert measured[-1] - measured[4] < 30  # 60 to 450, before.


async def test_a_subscription_to_long_uris_is_refused_over_http() -> None:
    server = Server("s", version="1")

    @server.resource("x://{name}")
    async def thing(name: str) -> str:
        """A thing."""
        return name

    message = request("subscriptions/listen", _wanted(resourceSubscriptions=["x://" + "a" * 1_000_000]))
    async with served(server) as base:
        response = await post_raw(base, json.dumps(message).encode(), headers_for(message))
    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32602


# Bodies that are on their way


def _unfinished(size: int) -> bytes:
    lines = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    return "\r\n".join([*lines, "Content-Length: 4000000", "", ""]).encode() + b" " * size


async def test_many_slow_uploads_share_a_bounded_room_and_small_requests_do_not_need_it() -> None:
    server = Server("s", version="1")
    listing = request("server/discover")
    async with (
        served(server, limits=HttpLimits(bodies=2_000_000)) as base,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(raw_client(base)) for _ in range(6)]
        for client in clients:
            client.writer.write(_unfinished(900_000))
        reading = [asyncio.create_task(client.reader.read()) for client in clients]
        async with asyncio.timeout(PATIENCE):
            while sum(task.done() for task in reading) < 4:
                await asyncio.sleep(0.01)
        assert (await post_raw(base, json.dumps(listing).encode(), headers_for(listing))).status_code == 200
        refused = [task.result() for task in reading if task.done()]
        assert len(refused) == 4
        for said in refused:
            assert b"503 Service Unavailable" in said
            assert b"retry-after: 5" in said
        for task in reading:
            task.cancel()
        for client in clients:
            client.abort()
        large = json.dumps(request("server/discover", {"padding": "a" * 1_500_000})).encode()
        async with asyncio.timeout(10):
            while (await post_raw(base, large, headers_for(listing))).status_code != 200:
                await asyncio.sleep(0.01)  # What the others held is given back when they are seen to be gone.


async def test_bodies_that_wait_behind_a_stream_are_bounded() -> None:
    listing = request("tools/list", {"padding": "a" * 1_000_000})
    body = json.dumps(listing).encode()
    lines = [f"{name}: {value}" for name, value in headers_for(listing).items()]
    head = "\r\n".join(
        ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *lines, "", ""]
    )
    async with spawned(_RUN, forked=False) as server, raw_client(server.base) as client:
        process = psutil.Process(server.process.pid)
        await _open(client, *_listen(1))
        before = _megabytes(process)
        for _ in range(30):
            client.writer.write(head.encode() + body)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await client.writer.drain()
        assert _megabytes(process) - before < 15  # 30 bodies are 30 MB; 16 of them waited, before.


async def test_headers_that_wait_behind_a_stream_are_bounded() -> None:
    async with spawned(_RUN, forked=False) as server, contextlib.AsyncExitStack() as stack:
        process = psutil.Process(server.process.pid)
        clients = [await stack.enter_async_context(raw_client(server.base)) for _ in range(20)]
        for client in clients:
            await _open(client, *_listen(1))
        before = _megabytes(process)
        for client in clients:
            client.writer.write(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n")
            await asyncio.sleep(0.01)  # So that the rest comes while a head is being read.
            client.writer.write(b"a:\r\n" * 65_000)
            await soon(client.writer.drain())
        await asyncio.sleep(0.2)
        assert _megabytes(process) - before < 25  # Each took 3 MB, before.


async def test_nothing_is_kept_of_trailers() -> None:
    async with spawned(_RUN, forked=False) as server, contextlib.AsyncExitStack() as stack:
        process = psutil.Process(server.process.pid)
        before = _megabytes(process)
        for _ in range(40):
            client = await stack.enter_async_context(raw_client(server.base))
            client.writer.write(
                b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            await asyncio.sleep(0.01)
            client.writer.write(b"0\r\n" + b"a:\r\n" * 15_000 + b"\r\n")
            assert b"200 OK" in await soon(client.reader.readuntil(b"\r\n"))
        assert _megabytes(process) - before < 25  # Each took 1.5 MB, before.


async def test_nothing_is_kept_of_the_body_of_a_get() -> None:
    opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _hello({}, {"name": "c"})}
    old = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    body = b"x" * 4_000_000
    async with spawned(_RUN, forked=False) as server, contextlib.AsyncExitStack() as stack:
        process = psutil.Process(server.process.pid)
        before = _megabytes(process)
        for _ in range(20):
            opened = await post_raw(server.base, json.dumps(opening).encode(), old)
            client = await stack.enter_async_context(raw_client(server.base))
            client.writer.write(
                b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
                b"Mcp-Session-Id: %b\r\nContent-Length: %d\r\n\r\n"
                % (opened.headers["mcp-session-id"].encode(), len(body))
            )
            client.writer.write(body)
            assert b"200 OK" in await soon(client.reader.readuntil(b"\r\n"))
        assert _megabytes(process) - before < 50  # They are 80 MB.


async def test_responses_of_a_batch_that_wait_for_one_another_are_bounded() -> None:
    server, go = Server("s", version="1"), asyncio.Event()

    @server.tool
    async def wait() -> str:
        """Wait until it is let go."""
        await go.wait()
        return "done"

    @server.tool
    async def long() -> str:
        """A long text."""
        return "x" * 100_000

    def asked(number: int) -> dict[str, Any]:
        params = {"name": "long" if number else "wait", "arguments": {}}
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}

    params = {**_hello({}, {"name": "c"}), "protocolVersion": "2025-03-26"}
    hello = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()
    old = {"content-type": "application/json", "accept": "application/json"}
    batch = json.dumps([asked(number) for number in range(36)]).encode()
    async with served(server, limits=HttpLimits(unread=1_000_000)) as base:
        opened = await post_raw(base, hello, old)
        session = old | {"mcp-session-id": opened.headers["mcp-session-id"]}
        answering = asyncio.create_task(post_raw(base, batch, session))
        await asyncio.sleep(0.3)
        go.set()
        answers = {answer["id"]: answer for answer in (await soon(answering)).json()}
    assert answers[0]["result"]["content"][0]["text"] == "done"
    failed = [answer["error"] for answer in answers.values() if "error" in answer]
    assert len(answers) == 36
    assert 20 <= len(failed) < 35
    assert failed[0]["code"] == -32603
    assert "send single requests" in failed[0]["message"]


@pytest.mark.parametrize(("letters", "heading"), [(30_000, 0), (0, 30_000)], ids=["bodies", "heads"])
async def test_large_calls_of_2025_that_are_left_alone_share_the_same_room(
    letters: int, heading: int
) -> None:
    server, go = Server("s", version="1"), asyncio.Event()
    begun: asyncio.Queue[None] = asyncio.Queue()

    @server.tool
    async def wait(text: str) -> str:
        """Wait until it is let go."""
        begun.put_nowait(None)
        await go.wait()
        return text[:1]

    old = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _hello({}, {"name": "c"})}
    async with served(server, limits=HttpLimits(bodies=100_000)) as base:
        opened = await post_raw(base, json.dumps(hello).encode(), old)
        old["mcp-session-id"] = opened.headers["mcp-session-id"]
        laden = old | {"x-long": "y" * heading}

        def large(number: int) -> bytes:
            params = {"name": "wait", "arguments": {"text": "x" * letters}}
            return json.dumps(
                {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            ).encode()

        for number in range(3):
            async with raw_client(base) as client:
                head = laden | {"content-length": str(len(large(number)))}
                await client.send_head(head)
                client.writer.write(large(number))
                await client.writer.drain()
                await soon(begun.get())
        refused = await post_raw(base, large(3), laden)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        ping = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "ping"}).encode()
        assert (await post_raw(base, ping, old)).status_code == 200
        go.set()
        async with asyncio.timeout(10):
            while (await post_raw(base, large(4), laden)).status_code != 200:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(("filler", "few"), [("x", 3), ("\xe9", 1), ("\u65e5", 1), ("\U0001f600", 0)])
@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_large_calls_of_2026_share_the_same_room_as_long_as_they_run(
    mounted: bool, filler: str, few: int
) -> None:
    server, go = Server("s", version="1"), asyncio.Event()
    begun: asyncio.Queue[None] = asyncio.Queue()

    @server.tool
    async def wait(text: str) -> str:
        """Wait until it is let go."""
        begun.put_nowait(None)
        await go.wait()
        return text[:1]

    message = call("wait", {"text": "x" * 300_000 + filler})
    body = json.dumps(message, ensure_ascii=filler == "\xe9").encode()
    headers, limits = headers_for(message), HttpLimits(bodies=1_200_000)
    async with served(server, mounted=mounted, limits=limits) as base:
        waiting = [asyncio.create_task(post_raw(base, body, headers)) for _ in range(few)]
        for _ in waiting:
            await soon(begun.get())
        refused = await post_raw(base, body, headers)
        small = await post_raw(
            base, json.dumps(request("tools/list")).encode(), headers_for(request("tools/list"))
        )
        go.set()
        answers = [await soon(each) for each in waiting]
        again = [await post_raw(base, body, headers) for _ in range(few)]
    assert (refused.status_code, refused.headers.get("retry-after")) == (503, "5")
    assert small.status_code == 200
    assert [answer.status_code for answer in (*answers, *again)] == [200] * 2 * few


async def test_a_blank_after_the_version_saves_no_room() -> None:
    server, go = Server("s", version="1"), asyncio.Event()
    begun: asyncio.Queue[None] = asyncio.Queue()

    @server.tool
    async def wait(text: str) -> str:
        """Wait until it is let go."""
        begun.put_nowait(None)
        await go.wait()
        return text[:1]

    message = call("wait", {"text": "x" * 300_000})
    body = json.dumps(message).encode()
    head = headers_for(message) | {"content-length": str(len(body))}
    head["mcp-protocol-version"] += " \t"
    async with (
        served(server, limits=HttpLimits(bodies=1_200_000)) as base,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(3):
            client = await stack.enter_async_context(raw_client(base))
            await client.send_head(head)
            client.writer.write(body)
            await soon(begun.get())
        client = await stack.enter_async_context(raw_client(base))
        await client.send_head(head)
        client.writer.write(body)
        assert b"503" in await soon(client.reader.readuntil(b"\r\n"))
        go.set()


def test_a_body_weighs_what_its_texts_may_take_in_memory() -> None:
    for text in ("x", "\xe9", "\u0142", "\u65e5", "\U0001f600"):
        for escaped in (False, True):
            body = json.dumps(["x" * 100_000 + text], ensure_ascii=escaped).encode()
            (read,) = json.loads(body)
            taken = sys.getsizeof(read) + (0 if read.isascii() else len(read.encode()))
            assert taken * 0.95 < weight_of(body) < taken * 3


@pytest.mark.parametrize("value", [[], {}, {"a": 1}, "ab", 1.5, [["x"]], {"a": {"b": []}}])
def test_a_body_weighs_what_its_values_take_in_memory(value: Any) -> None:
    body = json.dumps([value] * 5000).encode()
    decode(body)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        read = decode(body)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(read) == 5000
    assert taken * 0.95 < weight_of(body) < taken * 6 + 2 * len(body)


def test_commas_in_texts_weigh_nothing() -> None:
    text = json.dumps(["1,2,3,[4],{5}" * 10_000, 'a "quoted", text \\'] * 3).encode()
    assert weight_of(text) < len(text) + 10_000
    assert weight_of(b"[" + b'"",' * 300_000 + b"1]", 50_000) < 900_003 + 128 * 50_000 + 128
    assert weight_of(json.dumps({"a": "x, y. " * 100}).encode()) < 2000


@pytest.mark.parametrize("speaks", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_bodies_of_very_many_values_share_the_same_room(speaks: str, mounted: bool) -> None:
    server, go = Server("s", version="1"), asyncio.Event()
    begun: asyncio.Queue[None] = asyncio.Queue()

    @server.tool
    async def wait(data: list[Any]) -> str:
        """Wait until it is let go."""
        begun.put_nowait(None)
        await go.wait()
        return "done"

    message = call("wait", {"data": [[]] * 2000})
    headers: dict[str, str] = headers_for(message)
    async with served(server, mounted=mounted, limits=HttpLimits(bodies=1_300_000)) as base:
        if speaks == "2025-11-25":
            headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _hello({}, {"name": "c"})}
            opened = await post_raw(base, json.dumps(hello).encode(), headers)
            headers["mcp-session-id"] = opened.headers["mcp-session-id"]
            del message["params"]["_meta"]
        waiting: list[asyncio.Task[Any]] = []
        for number in range(2):
            body = json.dumps(message | {"id": number}).encode()
            waiting.append(asyncio.create_task(post_raw(base, body, headers)))
            await soon(begun.get())
        refused = await post_raw(base, json.dumps(message | {"id": 9}).encode(), headers)
        go.set()
        assert [(await soon(each)).status_code for each in waiting] == [200, 200]
    assert len(body) < 10_000
    assert refused.status_code == 503


async def test_what_is_no_call_of_2025_has_bounded_room_before_the_store() -> None:
    bodies = Shares(100_000)
    room = RequestRoom(bodies, most_running=3)
    small = Incoming("POST", "/mcp", {b"host": b"localhost"}, None, b"{}", address="192.0.2.1")
    large = Incoming("POST", "/mcp", {b"host": b"localhost"}, None, b"x" * 60_000, address="192.0.2.1")
    guests = [room.enter(small) for _ in range(3)]
    assert all(guests)
    assert room.enter(small) is None
    for guest in guests:
        assert guest is not None
        with guest:
            guest.arrived()
    first = room.enter(large)
    assert first is not None
    assert room.enter(large) is None  # Its bytes count before it is known what it is.
    with first:
        first.stay()
    assert room.enter(large) is None  # Its calls go on.
    first.leave()
    again = room.enter(large)
    assert again is not None


async def test_calls_of_2025_that_are_left_alone_are_bounded_in_number() -> None:
    server, go = Server("s", version="1"), asyncio.Event()
    begun: asyncio.Queue[None] = asyncio.Queue()

    @server.tool
    async def wait() -> str:
        """Wait until it is let go."""
        begun.put_nowait(None)
        await go.wait()
        return "done"

    old = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _hello({}, {"name": "c"})}
    params = {"name": "wait", "arguments": {}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    async with served(server, limits=HttpLimits(running_2025=3)) as base:
        sessions: list[dict[str, str]] = []
        for _ in range(4):
            opened = await post_raw(base, json.dumps(hello).encode(), old)
            sessions.append(old | {"mcp-session-id": opened.headers["mcp-session-id"]})
        for session in sessions[:3]:
            async with raw_client(base) as client:
                await client.send_head(session | {"content-length": str(len(message))})
                client.writer.write(message)
                await client.writer.drain()
                await soon(begun.get())
        refused = await post_raw(base, message, sessions[3])
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        cancelled = await post_raw(base, json.dumps(cancel).encode(), sessions[0])
        last = asyncio.create_task(post_raw(base, message, sessions[3]))
        await soon(begun.get())
        go.set()
        assert (await soon(last)).status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
    assert cancelled.status_code == 202
