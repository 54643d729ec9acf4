"""Streamable HTTP over a real uvicorn and real sockets."""

import asyncio
import gc
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from ekiden import Context, HttpLimits, InvalidParams, Server
from tests.eras.old_client import call as old_call
from tests.eras.old_client import old_client
from tests.serving import (
    PATIENCE,
    call,
    events,
    frames,
    headers_for,
    no_complaints,
    notification,
    post,
    post_raw,
    raw_client,
    request,
    served,
    soon,
)


class Probe:
    """A server whose handlers tell the test where they are and wait for it."""

    def __init__(self) -> None:
        self.server = Server("probe")
        self.began = asyncio.Event()
        self.release = asyncio.Event()
        self.ended = asyncio.Event()
        for tool in (self.echo, self.hold, self.report, self.refuse_late, self.stuck):
            self.server.tool(tool)

    async def echo(self, text: str) -> str:
        return text

    async def hold(self) -> str:
        try:
            self.began.set()
            await self.release.wait()
            return "held"
        finally:
            self.ended.set()

    async def report(self, ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.progress(2, 2)
        return "reported"

    async def refuse_late(self, ctx: Context) -> str:
        await ctx.progress(1)
        raise InvalidParams("too late")

    async def stuck(self, ctx: Context) -> str:
        try:
            await ctx.progress(1)
            self.began.set()
            await asyncio.Event().wait()
            return "never"
        finally:
            self.ended.set()


@pytest.fixture
def probe() -> Probe:
    return Probe()


# What an answer looks like


async def test_a_handler_that_says_nothing_is_answered_with_json(probe: Probe) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("echo", {"text": "ü"}, request_id="x"))
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["content-length"] == str(len(response.content))
    assert response.json()["id"] == "x"
    assert response.json()["result"]["content"] == [{"type": "text", "text": "ü"}]


async def test_a_handler_that_waits_and_says_nothing_is_answered_with_json(probe: Probe) -> None:
    async with served(probe.server) as base:
        answer = asyncio.create_task(post(base, call("hold")))
        await soon(probe.began.wait())
        probe.release.set()
        response = await soon(answer)
    assert response.headers["content-type"] == "application/json"
    assert response.json()["result"]["content"][0]["text"] == "held"


async def test_a_handler_that_reports_is_answered_with_a_stream_that_the_response_ends(probe: Probe) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("report", progressToken="t"))
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    first, second, last = events(response.text)
    assert [first["params"]["progress"], second["params"]["progress"]] == [1, 2]
    assert first["params"]["progressToken"] == "t"
    assert last["id"] == 1
    assert last["result"]["content"][0]["text"] == "reported"


async def test_progress_that_nobody_asked_for_makes_no_stream(probe: Probe) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("report"))
    assert response.headers["content-type"] == "application/json"


async def test_a_client_that_takes_json_only_gets_json_only(probe: Probe) -> None:
    async with served(probe.server, limits=HttpLimits(silence_seconds=0.01)) as base:
        response = await post(base, call("report", progressToken=1), accept="application/json")
        assert response.json()["result"]["content"][0]["text"] == "reported"
        answer = asyncio.create_task(post(base, call("hold"), accept="application/json"))
        await soon(probe.began.wait())
        await asyncio.sleep(0.05)  # The time in which keep-alives would have come.
        probe.release.set()
        response = await soon(answer)
        assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "accept", ["*/*", "text/*", "text/event-stream", "application/json, text/event-stream;q=0.5"]
)
async def test_a_client_that_takes_streams_gets_its_progress(probe: Probe, accept: str) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("report", progressToken=1), accept=accept)
    assert len(events(response.text)) == 3


async def test_a_subscription_needs_a_client_that_takes_streams(probe: Probe) -> None:
    async with served(probe.server) as base:
        listen = request("subscriptions/listen", {"notifications": {}})
        response = await post(base, listen, accept="application/json")
    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32600


async def test_an_error_after_the_stream_began_is_its_last_message(probe: Probe) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("refuse_late", progressToken=1))
    assert response.status_code == 200
    assert events(response.text)[-1]["error"] == {"code": -32602, "message": "too late"}


async def test_silence_is_filled_with_comments_until_the_answer_comes(probe: Probe) -> None:
    async with (
        served(probe.server, limits=HttpLimits(silence_seconds=0.1)) as base,
        raw_client(base) as client,
    ):
        await client.send(call("hold"))
        head = await client.read_until(b"\r\n\r\n")
        assert b"text/event-stream" in head
        for _ in range(3):
            await client.read_until(b": keep-alive\n\n")
        probe.release.set()
        end = await client.read_until(b"0\r\n\r\n")
    assert b'"held"' in end


async def test_a_subscription_is_kept_alive_too(probe: Probe) -> None:
    async with (
        served(probe.server, limits=HttpLimits(silence_seconds=0.1)) as base,
        raw_client(base) as client,
    ):
        await client.send(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        await client.read_until(b"subscriptions/acknowledged")
        await client.read_until(b": keep-alive\n\n")
        await client.read_until(b": keep-alive\n\n")


async def test_a_handler_that_speaks_often_enough_gets_no_comments() -> None:
    server = Server("s")

    @server.tool
    async def chat(ctx: Context) -> str:
        for n in range(1, 12):
            await ctx.progress(n)
            await asyncio.sleep(0.05)
        return "done"

    async with served(server, limits=HttpLimits(silence_seconds=0.4)) as base:
        response = await post(base, call("chat", progressToken=1))
    assert not any(frame.startswith(":") for frame in frames(response.text))


async def test_reports_of_concurrent_branches_never_interleave() -> None:
    server = Server("s")

    @server.tool
    async def branches(ctx: Context) -> str:
        async def branch(n: int) -> None:
            for i in range(10):
                await ctx.log("info", {"branch": n, "i": i, "filling": "x" * (1000 + 9000 * (i % 3))})

        async with asyncio.TaskGroup() as group:
            for n in range(20):
                group.create_task(branch(n))
        return "done"

    async with served(server, limits=HttpLimits(silence_seconds=0.001)) as base:
        response = await post(base, call("branches", **{"io.modelcontextprotocol/logLevel": "debug"}))
    *logs, last = events(response.text)
    assert last["result"]["content"][0]["text"] == "done"
    seen = [(log["params"]["data"]["branch"], log["params"]["data"]["i"]) for log in logs]
    assert len(seen) == 200
    for n in range(20):
        assert [i for branch, i in seen if branch == n] == list(range(10))


async def test_one_connection_serves_many_requests(probe: Probe) -> None:
    async with served(probe.server) as base, httpx2.AsyncClient(trust_env=False) as client:
        for n in range(5):
            message = call(
                "echo" if n % 2 else "report", {"text": "x"} if n % 2 else {}, request_id=n, progressToken=1
            )
            response = await client.post(base + "/mcp", json=message, headers=headers_for(message))
            answer = events(response.text)[-1] if n % 2 == 0 else response.json()
            assert answer["id"] == n


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        (call("nobody"), 400, -32602),
        (request("no/such"), 404, -32601),
        (request("prompts/list"), 404, -32601),
        (call("echo", {}, **{"io.modelcontextprotocol/logLevel": "loud"}), 400, -32602),
    ],
)
async def test_a_json_rpc_error_has_its_http_status(
    probe: Probe, message: dict[str, Any], status: int, code: int
) -> None:
    async with served(probe.server) as base:
        response = await post(base, message)
    assert response.status_code == status
    assert (response.json()["id"], response.json()["error"]["code"]) == (1, code)


@pytest.mark.parametrize(
    ("body", "request_id", "code"),
    [
        (b"", None, -32700),
        (b"{", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b"[" * 1000 + b"]" * 1000, None, -32700),
        (b"[]", None, -32600),
        (b'{"jsonrpc":"2.0","id":5,"result":{}}', 5, -32600),
        (b'{"jsonrpc":"1.0","id":"a","method":"x"}', "a", -32600),
    ],
)
async def test_a_body_that_is_no_request_is_a_400_that_names_the_id_if_it_can(
    probe: Probe, body: bytes, request_id: Any, code: int
) -> None:
    async with served(probe.server) as base:
        response = await post_raw(base, body, headers_for(request("x")))
    assert response.status_code == 400
    assert response.json().get("id") == request_id
    assert response.json()["error"]["code"] == code


async def test_headers_that_differ_from_the_body_are_a_400(probe: Probe) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("echo", {"text": "x"}), mcp_name="other")
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)
        assert response.json()["id"] == 1
        response = await post(base, call("echo"), mcp_protocol_version="2025-11-25")
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


async def test_a_mirrored_header_that_comes_twice_is_a_400(probe: Probe) -> None:
    message = call("echo", {"text": "x"})
    headers = [*headers_for(message).items(), ("Mcp-Name", "echo")]
    async with served(probe.server) as base, httpx2.AsyncClient(trust_env=False) as client:
        response = await client.post(base + "/mcp", json=message, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("POST", "host", "evil.example"),
        ("POST", "origin", "http://localhost"),
        ("POST", "authorization", "Bearer other"),
        ("POST", "content-type", "application/json"),
        ("GET", "mcp-session-id", "another"),
        ("DELETE", "mcp-session-id", "another"),
    ],
)
async def test_a_header_that_says_who_asks_for_what_must_not_come_twice(
    probe: Probe, method: str, name: str, value: str, mounted: bool
) -> None:
    body = json.dumps(call("echo", {"text": "x"})).encode()
    own = {
        **headers_for(call("echo")),
        "origin": "http://127.0.0.1",
        "authorization": "Bearer own",
        "mcp-session-id": "own",
        "host": "127.0.0.1",
        "content-length": str(len(body)),
    }
    lines = [f"{method} /mcp HTTP/1.1", f"{name}: {value}", *(f"{k}: {v}" for k, v in own.items())]
    async with served(probe.server, mounted=mounted) as base, raw_client(base) as client:
        client.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        assert b" 400 " in await client.read_until(b"\r\n")
        assert f"{name} is sent more than once".encode() in await client.read_to_end()


async def test_a_result_that_cannot_be_spelled_is_a_json_rpc_error() -> None:
    server = Server("s")

    @server.tool
    async def names() -> str:
        return "\udcff"  # As `os.listdir` gives the names of files that are no UTF-8.

    async with served(server) as base:
        response = await post(base, call("names"))
        assert response.headers["content-type"] == "application/json"
        assert response.json()["id"] == 1


# Refusals on the level of HTTP


async def test_a_notification_is_accepted_without_a_body(probe: Probe) -> None:
    async with served(probe.server) as base:
        response = await post(base, notification("notifications/whatever"))
    assert response.status_code == 202
    assert response.content == b""


@pytest.mark.parametrize("path", ["/", "/mcp/", "/MCP", "/mcp/x", "/other"])
async def test_another_path_is_404(probe: Probe, path: str) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("echo", {"text": "x"}), path=path)
    assert response.status_code == 404
    assert "/mcp" in response.json()["error"]["message"]


async def test_the_path_can_be_chosen_or_left_to_whoever_mounts(probe: Probe) -> None:
    async with served(probe.server, path="/a/b") as base:
        assert (await post(base, call("echo", {"text": "x"}), path="/a/b")).status_code == 200
        assert (await post(base, call("echo", {"text": "x"}))).status_code == 404
    async with served(probe.server, path=None) as base:
        assert (await post(base, call("echo", {"text": "x"}), path="/any/where")).status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_another_method_is_405_and_says_which_is_allowed(probe: Probe, method: str) -> None:
    async with served(probe.server) as base:
        response = await post_raw(base, b"", {"accept": "text/event-stream"}, method=method)
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/jsonp", "application/x-www-form-urlencoded", ""]
)
async def test_another_content_type_is_415(probe: Probe, content_type: str) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("echo", {"text": "x"}), content_type=content_type)
    assert response.status_code == 415


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/json;"]
)
async def test_json_may_be_spelled_with_parameters(probe: Probe, content_type: str) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("echo", {"text": "x"}), content_type=content_type)
    assert response.status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example"])
async def test_another_host_is_421(probe: Probe, host: str) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("echo", {"text": "x"}), host=host)
    assert response.status_code == 421
    assert "id" not in response.json()


async def test_a_host_can_be_allowed(probe: Probe) -> None:
    async with served(probe.server, allowed_hosts=["mcp.example"]) as base:
        assert (await post(base, call("echo", {"text": "x"}), host="mcp.example:443")).status_code == 200
        assert (await post(base, call("echo", {"text": "x"}))).status_code == 421


async def test_a_request_without_a_host_is_421(probe: Probe) -> None:
    async with served(probe.server) as base, raw_client(base) as client:
        client.writer.write(b"POST /mcp HTTP/1.0\r\ncontent-length: 0\r\n\r\n")
        assert b" 421 " in await client.read_until(b"\r\n")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
async def test_another_origin_is_403(probe: Probe, origin: str) -> None:
    async with served(probe.server) as base:
        response = await post(base, call("echo", {"text": "x"}), origin=origin)
    assert response.status_code == 403


async def test_a_page_of_this_machine_is_served(probe: Probe) -> None:
    async with served(probe.server) as base:
        assert (
            await post(base, call("echo", {"text": "x"}), origin="http://localhost:6274")
        ).status_code == 200


async def test_a_refused_request_is_refused_before_its_body_is_read(probe: Probe) -> None:
    async with served(probe.server) as base, raw_client(base) as client:
        await client.send_head(
            {"content-length": "1000", "content-type": "application/json"}, host="evil.example"
        )
        assert b" 421 " in await client.read_until(b"\r\n")
        await client.read_to_end()


async def test_a_body_that_announces_too_much_is_413_before_it_is_sent(probe: Probe) -> None:
    async with served(probe.server, limits=HttpLimits(body=1000)) as base, raw_client(base) as client:
        await client.send_head({"content-length": "1001", "content-type": "application/json"})
        assert b" 413 " in await client.read_until(b"\r\n")
        await client.read_to_end()


@pytest.mark.parametrize("digits", [30, 400])
async def test_a_body_that_announces_an_absurd_length_is_refused(probe: Probe, digits: int) -> None:
    async with served(probe.server) as base, raw_client(base) as client:
        await client.send_head({"content-length": "9" * digits, "content-type": "application/json"})
        status = await client.read_until(b"\r\n")
        assert b" 413 " in status or b" 400 " in status


CHUNKED = {"transfer-encoding": "chunked", "content-type": "application/json"}


async def test_a_chunked_body_that_grows_too_large_is_413_before_it_ends(probe: Probe) -> None:
    async with served(probe.server, limits=HttpLimits(body=1000)) as base, raw_client(base) as client:
        await client.send_head(CHUNKED)
        for _ in range(11):
            client.writer.write(b"64\r\n" + b" " * 100 + b"\r\n")
            await client.writer.drain()
        assert b" 413 " in await client.read_until(b"\r\n")
        await client.read_to_end()


async def test_a_chunked_body_that_is_too_large_is_413_even_if_it_comes_all_at_once(probe: Probe) -> None:
    async with served(probe.server, limits=HttpLimits(body=1000)) as base, raw_client(base) as client:
        head = "\r\n".join(
            ["POST /mcp HTTP/1.1", "host: localhost", *(f"{k}: {v}" for k, v in CHUNKED.items())]
        )
        client.writer.write(head.encode() + b"\r\n\r\n7d0\r\n" + b" " * 2000 + b"\r\n0\r\n\r\n")
        assert b" 413 " in await client.read_until(b"\r\n")


async def test_a_body_of_exactly_the_limit_is_served(probe: Probe) -> None:
    message = call("echo", {"text": "x"})
    body = json.dumps(message).encode()
    async with served(probe.server, limits=HttpLimits(body=len(body))) as base:
        assert (await post_raw(base, body, headers_for(message))).status_code == 200
        assert (await post_raw(base, body + b" ", headers_for(message))).status_code == 413


async def test_a_body_in_many_small_pieces_is_put_together(probe: Probe) -> None:
    message = call("echo", {"text": "x" * 500})

    async def pieces() -> AsyncIterator[bytes]:
        body = json.dumps(message).encode()
        for start in range(0, len(body), 50):
            yield body[start : start + 50]
            await asyncio.sleep(0)

    async with served(probe.server) as base:
        response = await post_raw(base, pieces(), headers_for(message))
    assert response.json()["result"]["content"][0]["text"] == "x" * 500


async def test_a_body_that_takes_too_long_is_408(probe: Probe) -> None:
    async with served(probe.server, limits=HttpLimits(body_seconds=0.2)) as base, raw_client(base) as client:
        await client.send_head({"content-length": "100", "content-type": "application/json"})
        client.writer.write(b"{")
        assert b" 408 " in await client.read_until(b"\r\n")
        await client.read_to_end()


async def test_a_body_that_never_begins_is_408(probe: Probe) -> None:
    async with served(probe.server, limits=HttpLimits(body_seconds=0.2)) as base, raw_client(base) as client:
        await client.send_head({"content-length": "100", "content-type": "application/json"})
        assert b" 408 " in await client.read_until(b"\r\n")


async def test_a_client_that_leaves_within_its_body_is_forgotten_quietly(probe: Probe) -> None:
    async with served(probe.server) as base:
        async with raw_client(base) as client:
            await client.send_head({"content-length": "100", "content-type": "application/json"})
            client.writer.write(b"{")
            await client.writer.drain()
        assert (await post(base, call("echo", {"text": "x"}))).status_code == 200


# Clients that leave


async def test_a_client_that_leaves_cancels_its_call(probe: Probe) -> None:
    async with served(probe.server) as base, raw_client(base) as client:
        await client.send(call("hold"))
        await soon(probe.began.wait())
        client.abort()
        await soon(probe.ended.wait())
        assert not probe.release.is_set()


async def test_a_client_that_leaves_its_stream_cancels_its_call(probe: Probe) -> None:
    async with served(probe.server) as base, raw_client(base) as client:
        await client.send(call("stuck", progressToken=1))
        await client.read_until(b"notifications/progress")
        client.abort()
        await soon(probe.ended.wait())


async def test_a_client_that_closes_politely_cancels_its_call_too(probe: Probe) -> None:
    async with served(probe.server) as base:
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            message = call("stuck", progressToken=1)
            async with client.stream(
                "POST", base + "/mcp", json=message, headers=headers_for(message)
            ) as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data:"):
                        break
        await soon(probe.ended.wait())


async def test_a_client_that_leaves_its_subscription_is_forgotten(probe: Probe) -> None:
    hub = probe.server._registry.hub
    async with served(probe.server) as base:
        async with raw_client(base) as client:
            await client.send(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
            await client.read_until(b"subscriptions/acknowledged")
            assert len(hub._open) == 1
        async with asyncio.timeout(PATIENCE):
            while hub._open:
                await asyncio.sleep(0.005)


async def test_other_calls_go_on_when_one_client_leaves(probe: Probe) -> None:
    async with served(probe.server) as base:
        staying = asyncio.create_task(post(base, call("hold")))
        await soon(probe.began.wait())
        async with raw_client(base) as client:
            await client.send(call("stuck", progressToken=1))
            await client.read_until(b"notifications/progress")
        await soon(probe.ended.wait())
        probe.release.set()
        assert (await soon(staying)).json()["result"]["content"][0]["text"] == "held"


# Mounted in other applications


def counting_server() -> tuple[Server, list[str]]:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[str, None]:
        log.append("start")
        yield "the state"
        log.append("stop")

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def state(ctx: Context) -> str:
        return str(ctx.state)

    return server, log


def starlette(server: Server, lifespan: Any) -> Any:
    return Starlette(routes=[Mount("/api", server.asgi())], lifespan=lifespan)


def fastapi(server: Server, lifespan: Any) -> Any:
    application = FastAPI(lifespan=lifespan)
    application.mount("/api", server.asgi())
    return application


@pytest.mark.parametrize("framework", [starlette, fastapi])
async def test_mounted_with_the_lifespan_it_starts_and_stops_with_the_application(framework: Any) -> None:
    server, log = counting_server()
    async with served(framework(server, server.running)) as base:
        assert log == ["start"]
        response = await post(base, call("state"), path="/api/mcp")
        assert response.json()["result"]["content"][0]["text"] == "the state"
        assert (await post(base, call("state"), path="/mcp")).status_code == 404
    assert log == ["start", "stop"]


@pytest.mark.parametrize("framework", [starlette, fastapi])
async def test_mounted_without_the_lifespan_the_first_request_starts_it(framework: Any) -> None:
    server, log = counting_server()
    async with served(framework(server, None)) as base:
        assert log == []
        answers = await asyncio.gather(*(post(base, call("state"), path="/api/mcp") for _ in range(10)))
        assert {answer.json()["result"]["content"][0]["text"] for answer in answers} == {"the state"}
        assert log == ["start"]
    await server.asgi().endpoint.stop()


def behind_middleware(server: Server, seen: list[int]) -> Any:
    """A FastAPI application whose middleware is written as its tutorial does."""
    application = FastAPI(lifespan=server.running)

    @application.middleware("http")
    async def watch(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        seen.append(response.status_code)
        return response

    application.mount("/", server.asgi())
    return application


async def test_a_cancelled_call_behind_fastapis_middleware_is_quiet(probe: Probe) -> None:
    seen: list[int] = []
    async with served(behind_middleware(probe.server, seen)) as base:
        async with raw_client(base) as client:
            await client.send(call("hold"))
            await soon(probe.began.wait())
        await soon(probe.ended.wait())
        assert (await post(base, call("echo", {"text": "still here"}))).status_code == 200
    assert seen == [499, 200]


async def test_a_client_that_leaves_within_its_request_is_quiet_behind_fastapis_middleware(
    probe: Probe,
) -> None:
    seen: list[int] = []
    async with served(behind_middleware(probe.server, seen)) as base:
        async with raw_client(base) as client:
            await client.send_head({**headers_for(call("echo")), "content-length": "1000"})
            client.abort()
        async with asyncio.timeout(PATIENCE):
            while not seen:
                await asyncio.sleep(0.005)
    assert seen == [499]


async def test_a_client_of_2025_that_leaves_its_call_is_quiet_behind_fastapis_middleware(
    probe: Probe,
) -> None:
    async with served(behind_middleware(probe.server, [])) as base:
        async with old_client(base) as client:
            leaving = asyncio.ensure_future(client.answered(old_call("hold")))
            await soon(probe.began.wait())
            leaving.cancel()
            await asyncio.wait({leaving})
        probe.release.set()
        assert (await post(base, call("echo", {"text": "still here"}))).status_code == 200


@pytest.mark.parametrize("framework", [starlette, fastapi])
async def test_mounted_it_says_where_in_the_application_its_endpoint_is(probe: Probe, framework: Any) -> None:
    async with served(framework(probe.server, probe.server.running)) as base:
        response = await post(base, call("echo", {"text": "hello"}), path="/api/elsewhere")
    assert response.status_code == 404
    assert "the MCP endpoint is /api/mcp" in response.text


async def test_mounted_without_a_path_of_its_own_it_answers_where_it_is_mounted(probe: Probe) -> None:
    application = Starlette(
        routes=[Mount("/tools", probe.server.asgi(path=None))], lifespan=probe.server.running
    )
    async with served(application) as base:
        response = await post(base, call("report", progressToken=1), path="/tools/")
    assert len(events(response.text)) == 3


async def test_a_lifespan_that_fails_at_the_first_request_is_an_internal_error_without_the_reason() -> None:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[None, None]:
        raise OSError("secret-dsn")
        yield

    server = Server("s", lifespan=lifespan)
    async with served(starlette(server, None)) as base:
        response = await post(base, request("server/discover"), path="/api/mcp")
    assert response.json()["error"]["code"] == -32603
    assert "secret-dsn" not in response.text


# Below uvicorn: what can be seen only from the other side of the ASGI interface


class Connection:
    """An ASGI server's side of one request, whose `send` can be made to block."""

    def __init__(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.events.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self.writable = asyncio.Event()
        self.writable.set()
        self.attempted = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        headers = [(name.encode(), value.encode()) for name, value in headers_for(message).items()]
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": [(b"host", b"localhost"), *headers],
        }

    async def send(self, event: dict[str, Any]) -> None:
        self.attempted.set()
        await self.writable.wait()
        self.sent.append(event)


async def test_receive_may_give_any_awaitable(probe: Probe) -> None:
    connection = Connection(request("server/discover"))

    def receive() -> asyncio.Future[dict[str, Any]]:
        return asyncio.ensure_future(connection.events.get())

    await soon(probe.server.asgi()(connection.scope, receive, connection.send))
    assert connection.sent[0]["status"] == 200


async def test_an_answer_during_a_blocked_keep_alive_is_still_a_whole_response(probe: Probe) -> None:
    connection = Connection(call("hold"))
    connection.writable.clear()
    application = probe.server.asgi(limits=HttpLimits(silence_seconds=0.01))
    serving = asyncio.create_task(application(connection.scope, connection.events.get, connection.send))
    await soon(connection.attempted.wait())
    probe.release.set()
    await soon(probe.ended.wait())
    for _ in range(10):
        await asyncio.sleep(0)
    connection.writable.set()
    await soon(serving)
    kinds = [event["type"] for event in connection.sent]
    assert kinds[0] == "http.response.start"
    assert kinds.count("http.response.start") == 1
    assert not connection.sent[-1].get("more_body")


async def test_a_client_that_takes_not_even_keep_alives_is_let_go_without_noise(probe: Probe) -> None:
    connection = Connection(call("hold"))
    connection.writable.clear()
    application = probe.server.asgi(limits=HttpLimits(silence_seconds=0.01, stall_seconds=0.1))
    with no_complaints():
        serving = asyncio.create_task(application(connection.scope, connection.events.get, connection.send))
        await soon(asyncio.wait({serving}))
        assert probe.ended.is_set()
        assert not serving.cancelled()
        assert serving.exception() is None
        await asyncio.sleep(0.2)  # The time in which abandoned keep-alives come to their own ends.
        gc.collect()


async def test_only_one_keep_alive_is_under_way_at_a_time(probe: Probe) -> None:
    connection = Connection(call("hold"))
    connection.writable.clear()
    application = probe.server.asgi(limits=HttpLimits(silence_seconds=0.01))
    before = len(asyncio.all_tasks())
    serving = asyncio.create_task(application(connection.scope, connection.events.get, connection.send))
    await soon(connection.attempted.wait())
    await asyncio.sleep(0.1)
    under_way = len(asyncio.all_tasks()) - before
    connection.writable.set()
    probe.release.set()
    await soon(serving)
    assert under_way <= 3  # The request, its watch for a disconnect, and one keep-alive.


async def test_a_websocket_is_turned_away(probe: Probe) -> None:
    sent: list[dict[str, Any]] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    await probe.server.asgi()({"type": "websocket"}, asyncio.Event().wait, send)  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_a_lifespan_that_fails_stops_the_server_from_starting(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[None, None]:
        raise OSError("no database")
        yield

    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    await soon(Server("s", lifespan=lifespan).asgi()({"type": "lifespan"}, receive, send))
    assert sent == [{"type": "lifespan.startup.failed", "message": "no database"}]
    assert "no database" in caplog.text
