"""The connection that `Server.run` serves with, byte by byte over real sockets."""

import asyncio
import gc
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from ekiden import CallNext, Context, HttpLimits, Outcome, Request, Server
from ekiden.transports.server.http1.connection import Connection
from tests.serving import PATIENCE, call, headers_for, raw_client, request, served, soon


def _server() -> Server:
    server = Server("connections", version="1")

    @server.tool
    async def greet(name: str) -> str:
        """Greet someone."""
        return f"Hello, {name}!"

    @server.tool
    async def slowly(ctx: Context) -> str:
        """Take a moment, and say so."""
        await ctx.log("info", "on my way")
        await asyncio.sleep(0.05)
        return "there"

    return server


def _post(message: dict[str, Any], *extra: str, version: str = "1.1", path: str = "/mcp") -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    lines = [f"POST {path} HTTP/{version}", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers_for(message).items()]
    return "\r\n".join([*lines, *extra, "", ""]).encode() + body


class _Line:
    """A raw connection that reads whole responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await soon(self._reader.readuntil(b"\r\n\r\n"))).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), headers

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        status, headers = await self.head()
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, await self._chunks()
        return status, headers, await soon(self._reader.readexactly(int(headers["content-length"])))

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await soon(self._reader.readuntil(b"\r\n")), 16):
            body += await soon(self._reader.readexactly(size))
            await soon(self._reader.readexactly(2))
        await soon(self._reader.readexactly(2))
        return body

    async def rest(self) -> bytes:
        return await soon(self._reader.read())


@asynccontextmanager
async def _connected(**limits: Any) -> AsyncGenerator[_Line, None]:
    async with served(_server(), limits=HttpLimits(**limits)) as base, _line_to(base) as line:
        yield line


@asynccontextmanager
async def _line_to(base: str) -> AsyncGenerator[_Line, None]:
    host, port = base.removeprefix("http://").split(":")
    reader, writer = await soon(asyncio.open_connection(host, int(port)))
    try:
        yield _Line(reader, writer)
    finally:
        writer.close()


def _text(body: bytes) -> str:
    text: str = json.loads(body)["result"]["content"][0]["text"]
    return text


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with _connected() as line:
        for name in ("Ada", "Grace", "Hedy"):
            line.send(_post(call("greet", {"name": name})))
            status, headers, body = await line.response()
            assert (status, _text(body)) == (200, f"Hello, {name}!")
            assert headers["content-type"] == "application/json"
            assert "date" in headers
            assert "connection" not in headers


async def test_a_body_that_is_longer_than_the_one_before_is_read_whole() -> None:
    async with _connected() as line:
        for size in (3, 3000, 3, 99_999, 4):
            line.send(_post(call("greet", {"name": "x" * size})))
            assert _text((await line.response())[2]) == f"Hello, {'x' * size}!"


async def test_a_request_that_was_sent_before_may_come_in_pieces() -> None:
    async with _connected() as line:
        data = _post(call("greet", {"name": "Ada"}))
        for cut in (len(data), 1, 40, data.index(b"\r\n\r\n") + 2, len(data) - 1):
            line.send(data[:cut])
            await asyncio.sleep(0.02)
            line.send(data[cut:])
            assert _text((await line.response())[2]) == "Hello, Ada!"


@pytest.mark.parametrize("length", ["5,5", "+5", "0x5", "-5", "five", ""])
async def test_a_length_that_two_readers_could_read_differently_is_refused(length: str) -> None:
    data = _post(call("greet", {"name": "Ada"}))
    wrong = re.sub(rb"Content-Length: \d+", f"Content-Length: {length}".encode(), data)
    async with _connected() as line:
        for sent, status in ((data, 200), (wrong, 400)):
            line.send(sent)
            assert (await line.response())[0] == status


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with _connected() as line:
        messages = [call("slowly"), *(call("greet", {"name": str(number)}) for number in range(40))]
        line.send(b"".join(_post(message) for message in messages))
        assert _text((await line.response())[2]) == "there"
        for number in range(40):
            assert _text((await line.response())[2]) == f"Hello, {number}!"


async def test_reading_goes_on_when_fewer_requests_wait_for_their_turn() -> None:
    begun, free = asyncio.Event(), asyncio.Event()
    server = _server()

    @server.tool
    async def wait() -> str:
        """Wait until it is let go."""
        begun.set()
        await free.wait()
        return "free"

    def greets(numbers: range) -> bytes:
        return b"".join(_post(call("greet", {"name": str(number)})) for number in numbers)

    async with served(server) as base, _line_to(base) as line:
        line.send(_post(call("wait")) + greets(range(20)))
        await soon(begun.wait())  # More than 16 requests wait for their turn: nothing more is read.
        line.send(greets(range(20, 40)))
        connection = await soon(_only_connection())
        while connection.transport.is_reading():
            await asyncio.sleep(0.01)
        free.set()
        assert _text((await line.response())[2]) == "free"
        for number in range(40):
            assert _text((await line.response())[2]) == f"Hello, {number}!"


class _Streaming:
    """A server with a tool that streams until it is let go, and what its requests take of the budget."""

    def __init__(self, **limits: Any) -> None:
        server, self.free = _server(), asyncio.Event()

        @server.tool
        async def stream(ctx: Context) -> str:
            """Say something, and wait."""
            await ctx.log("info", "on my way")
            await self.free.wait()
            return "free"

        self.application = server.asgi(limits=HttpLimits(**limits))

    @property
    def held(self) -> int:
        return self.application.bodies.of("127.0.0.1")

    @asynccontextmanager
    async def behind(self, data: bytes) -> AsyncGenerator[tuple[_Line, Any], None]:
        """A connection on which this was sent behind a stream, when no more of it is read."""
        async with served(self.application) as base, _line_to(base) as line:
            line.send(_post(call("stream", **{"io.modelcontextprotocol/logLevel": "info"})))
            assert (await line.head())[1]["content-type"] == "text/event-stream"
            line.send(data)
            connection = await soon(_only_connection())
            async with asyncio.timeout(PATIENCE):
                while connection.transport.is_reading():
                    await asyncio.sleep(0.01)
            yield line, connection


_MANY = [f"{number:x}:" for number in range(400)]


@pytest.mark.parametrize(
    "one",
    [_post(call("greet", {"name": "a" * 60_000})), _post(call("greet", {"name": "Ada"}), *_MANY)],
    ids=["bodies", "heads"],
)
async def test_behind_a_stream_little_waits_and_all_is_answered(one: bytes) -> None:
    streaming = _Streaming()
    async with streaming.behind(one * 40) as (line, connection):
        waiting, kept = connection._waiting, len(connection._unsliced)
        assert len(waiting) <= 1 + 8 * 1024 // len(one) + 1
        assert streaming.held >= len(waiting) * 50_000 + kept
        streaming.free.set()
        assert b"free" in await line._chunks()
        for _ in range(40):
            status, _, body = await line.response()
            assert (status, _text(body)[:7]) == (200, "Hello, ")
        assert streaming.held == 0


async def test_what_waits_behind_a_stream_is_given_back_when_its_client_leaves() -> None:
    streaming = _Streaming()
    async with streaming.behind(_post(call("greet", {"name": "a" * 60_000})) * 40) as (line, _):
        assert streaming.held > 60_000
        line._writer.transport.abort()
        streaming.free.set()
        async with asyncio.timeout(PATIENCE):
            while streaming.held:
                await asyncio.sleep(0.01)


async def test_what_is_too_much_to_wait_is_refused_after_the_stream() -> None:
    streaming = _Streaming(bodies=50_000)
    async with served(streaming.application) as base, _line_to(base) as line:
        line.send(_post(call("stream", **{"io.modelcontextprotocol/logLevel": "info"})))
        await line.head()
        line.send(_post(call("greet", {"name": "a" * 60_000})))
        connection = await soon(_only_connection())
        async with asyncio.timeout(PATIENCE):
            while connection._refused is None:
                await asyncio.sleep(0.01)
        streaming.free.set()
        assert b"free" in await line._chunks()
        status, headers, _ = await line.response()
        assert (status, headers["retry-after"], await line.rest()) == (503, "5", b"")
        assert streaming.held == 0


@pytest.mark.parametrize("together", [False, True])
async def test_of_thousands_of_tiny_requests_that_come_at_once_only_some_wait_in_memory(
    together: bool,
) -> None:
    begun, free = asyncio.Event(), asyncio.Event()
    server, count = _server(), 5000

    @server.tool
    async def wait() -> str:
        """Wait until it is let go."""
        begun.set()
        await free.wait()
        return "free"

    tiny = b"GET /mcp HTTP/1.1\r\nHost:localhost\r\n\r\n" * count
    async with served(server) as base, _line_to(base) as line:
        line.send(_post(call("wait")) + (tiny if together else b""))
        await soon(begun.wait())
        if not together:
            line.send(tiny)
        connection = await soon(_only_connection())
        async with asyncio.timeout(PATIENCE):
            while connection.transport.is_reading():
                await asyncio.sleep(0.01)
        assert 16 <= len(connection._waiting) < 300
        free.set()
        assert _text((await line.response())[2]) == "free"
        assert [(await line.response())[0] for _ in range(count)] == [405] * count


@pytest.mark.parametrize(
    ("header", "value"),
    [("mcp-protocol-version", "2026-01-01"), ("mcp-method", "prompts/list")],
)
async def test_a_list_that_was_asked_for_before_is_checked_again(header: str, value: str) -> None:
    plain = _post(request("tools/list"))
    other = re.sub(rf"(?i)\r\n{header}: [^\r]*".encode(), f"\r\n{header}: {value}".encode(), plain)
    assert other != plain
    async with _connected() as line:
        for _ in range(3):
            line.send(plain)
            assert (await line.response())[0] == 200
        line.send(other)
        status, _, body = await line.response()
        assert (status, json.loads(body)["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize("asked", [request("tools/list"), call("greet", {"name": "Ada"})])
async def test_another_version_of_json_rpc_is_refused_whatever_came_before(asked: dict[str, Any]) -> None:
    async with _connected() as line:
        for version, status in (("2.0", 200), ("1.0", 400), ("2.0", 200)):
            line.send(_post({**asked, "jsonrpc": version}))
            found, _, body = await line.response()
            assert found == status
            assert ("error" in json.loads(body)) == (status == 400)
            if status == 400:
                assert json.loads(body)["error"]["code"] == -32600


async def test_answers_that_lie_ready_wait_for_their_turn() -> None:
    async with _connected() as line:
        listing = [request("tools/list", request_id=number) for number in range(40)]
        for message in listing[:2]:
            line.send(_post(message))
            await line.response()
        line.send(
            b"".join(_post(message) for message in [call("slowly"), *listing, call("slowly"), *listing])
        )
        for _ in range(2):
            assert _text((await line.response())[2]) == "there"
            for number in range(40):
                assert json.loads((await line.response())[2])["id"] == number


async def test_a_request_may_come_in_pieces_of_any_size() -> None:
    async with _connected() as line:
        data = _post(call("greet", {"name": "Ada"}))
        for byte in data:
            line.send(bytes([byte]))
            await asyncio.sleep(0)
        assert _text((await line.response())[2]) == "Hello, Ada!"


async def test_a_body_may_be_chunked() -> None:
    message = call("greet", {"name": "Ada"})
    body = json.dumps(message).encode()
    lines = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", "Transfer-Encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in headers_for(message).items()]
    async with _connected() as line:
        line.send("\r\n".join([*lines, "", ""]).encode())
        for start in range(0, len(body), 7):
            piece = body[start : start + 7]
            line.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        line.send(b"0\r\n\r\n")
        assert _text((await line.response())[2]) == "Hello, Ada!"


async def test_a_client_that_waits_for_leave_to_send_gets_it() -> None:
    async with _connected() as line:
        head, _, body = _post(call("greet", {"name": "Ada"}), "Expect: 100-continue").partition(b"\r\n\r\n")
        line.send(head + b"\r\n\r\n")
        assert (await line.head())[0] == 100
        line.send(body)
        assert _text((await line.response())[2]) == "Hello, Ada!"


@pytest.mark.parametrize(("extra", "version"), [(("Connection: close",), "1.1"), ((), "1.0")])
async def test_a_connection_is_closed_where_the_client_wants_it(extra: tuple[str, ...], version: str) -> None:
    async with _connected() as line:
        line.send(_post(call("greet", {"name": "Ada"}), *extra, version=version))
        _, headers, body = await line.response()
        assert (_text(body), headers["connection"]) == ("Hello, Ada!", "close")
        assert await line.rest() == b""


async def test_a_stream_for_a_client_without_chunks_ends_with_the_connection() -> None:
    message = request("tools/call", {"name": "slowly"}, **{"io.modelcontextprotocol/logLevel": "debug"})
    async with _connected() as line:
        line.send(_post(message, version="1.0"))
        status, headers = await line.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert "transfer-encoding" not in headers
        events = (await line.rest()).decode()
        assert events.index("on my way") < events.index("there")


async def test_a_stream_is_chunked_and_the_connection_goes_on() -> None:
    message = request("tools/call", {"name": "slowly"}, **{"io.modelcontextprotocol/logLevel": "debug"})
    async with _connected() as line:
        line.send(_post(message))
        _, headers, body = await line.response()
        assert headers["content-type"] == "text/event-stream"
        assert b"on my way" in body
        line.send(_post(request("tools/list")))
        assert json.loads((await line.response())[2])["result"]["tools"]


async def test_an_upgrade_is_not_taken_and_does_no_harm() -> None:
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    async with _connected() as line:
        line.send(_post(call("greet", {"name": "Ada"}), *upgrade))
        assert _text((await line.response())[2]) == "Hello, Ada!"
        line.send(_post(call("greet", {"name": "Grace"})))
        assert _text((await line.response())[2]) == "Hello, Grace!"


_WRONG = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    (b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 414),
    (b"POST /mcp HTTP/1.1\r\n" + b"X-Filler: " + b"a" * 70_000 + b"\r\n\r\n", 431),
    (b"POST /mcp HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(20_000)) + b"\r\n", 431),
    (b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n", 413),
    (b"POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 5\r\n\r\n", 421),
    (b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 405),
    (b"GET /healthz\r\n\r\n", 505),
    (b"GET /healthz HTTP/0.9\r\nConnection: keep-alive\r\n\r\n", 505),
    (b"GET /mcp HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n", 505),
]


@pytest.mark.parametrize(("data", "status"), _WRONG)
async def test_what_is_wrong_is_refused_in_words(data: bytes, status: int) -> None:
    async with _connected() as line:
        line.send(data)
        answered, headers, body = await line.response()
        assert answered == status
        assert headers["content-type"] == "application/json"
        assert json.loads(body)["error"]["message"]


@pytest.mark.parametrize(("data", "status"), _WRONG)
async def test_what_is_wrong_is_refused_after_what_came_before_it_is_answered(
    data: bytes, status: int
) -> None:
    async with _connected() as line:
        line.send(_post(call("slowly")) + _post(call("greet", {"name": "Ada"})) + data)
        assert _text((await line.response())[2]) == "there"
        assert _text((await line.response())[2]) == "Hello, Ada!"
        assert (await line.response())[0] == status


async def test_a_request_that_never_comes_whole_is_given_up_after_the_answers_before_it() -> None:
    begun, free = asyncio.Event(), asyncio.Event()
    server = _server()

    @server.tool
    async def wait() -> str:
        """Wait until it is let go."""
        begun.set()
        await free.wait()
        return "free"

    limits = HttpLimits(body_seconds=0.1)
    async with served(server, limits=limits) as base, _line_to(base) as line:
        line.send(_post(call("wait")) + _post(call("greet", {"name": "Ada"}))[:-5])
        await soon(begun.wait())
        await asyncio.sleep(0.3)
        line.send(b"what comes too late is not read\r\n\r\n")
        free.set()
        assert _text((await line.response())[2]) == "free"
        assert (await line.response())[0] == 408
        assert await line.rest() == b""


async def test_a_chunked_body_that_grows_too_large_is_refused() -> None:
    message = request("tools/list")
    lines = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", "Transfer-Encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in headers_for(message).items()]
    async with _connected(body=10_000) as line:
        line.send("\r\n".join([*lines, "", ""]).encode())
        for _ in range(20):
            line.send(b"400\r\n" + b" " * 1024 + b"\r\n")
        assert (await line.response())[0] == 413
        assert await line.rest() == b""


@pytest.mark.parametrize("cut", [20, -5])
async def test_a_request_that_never_comes_whole_is_given_up(cut: int) -> None:
    async with _connected(body_seconds=0.2) as line:
        line.send(_post(call("greet", {"name": "Ada"}))[:cut])
        assert (await line.response())[0] == 408
        assert await line.rest() == b""


async def test_many_pieces_do_not_extend_the_time() -> None:
    async with _connected(body_seconds=0.3) as line:
        answer = asyncio.ensure_future(line.response())
        for byte in _post(call("greet", {"name": "A" * 2000})):
            line.send(bytes([byte]))
            await asyncio.sleep(0.005)
            if answer.done():
                break
        assert (await answer)[0] == 408


async def test_a_tunnel_is_refused_without_a_complaint() -> None:
    async with _connected() as line:
        line.send(b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await line.response())[0] == 501
        assert await line.rest() == b""


async def test_a_target_that_is_no_url_is_the_clients_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with _connected() as line:
        line.send(b"POST http://a:99999999/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await line.response())[0] == 400
    assert not [record for record in caplog.records if record.name.startswith("ekiden.transports")]


async def test_a_path_may_be_spelled_in_percent() -> None:
    async with _connected() as line:
        line.send(_post(call("greet", {"name": "Ada"}), path="/%6dcp"))
        assert _text((await line.response())[2]) == "Hello, Ada!"


async def test_leave_to_send_does_not_break_into_another_answer() -> None:
    stream = request("tools/call", {"name": "slowly"}, **{"io.modelcontextprotocol/logLevel": "debug"})
    head, _, body = _post(call("greet", {"name": "Ada"}), "Expect: 100-continue").partition(b"\r\n\r\n")
    async with _connected() as line:
        line.send(_post(stream) + head + b"\r\n\r\n")
        _, _, events = await line.response()
        assert b"there" in events
        assert b"100 Continue" not in events
        assert (await line.head())[0] == 100
        line.send(body)
        assert _text((await line.response())[2]) == "Hello, Ada!"


async def test_a_header_that_never_ends_is_refused() -> None:
    async with _connected() as line:
        line.send(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Endless: ")
        for _ in range(40):
            line.send(b"a" * 16_384)
            await asyncio.sleep(0)
        assert (await line.response())[0] == 431
        assert await line.rest() == b""


def _chunked(message: dict[str, Any], trailers: bytes) -> bytes:
    body = json.dumps(message).encode()
    lines = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", "Transfer-Encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in headers_for(message).items()]
    head = "\r\n".join([*lines, "", ""]).encode()
    return head + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailers)


async def test_what_follows_a_chunked_body_is_no_header() -> None:
    trailers = b"Host: evil.example\r\nMcp-Method: tools/list\r\nMcp-Method: prompts/list\r\n"
    async with _connected() as line:
        for name in ("Ada", "Grace"):
            line.send(_chunked(call("greet", {"name": name}), trailers))
            assert _text((await line.response())[2]) == f"Hello, {name}!"


async def test_a_trailer_that_never_ends_is_refused() -> None:
    async with _connected() as line:
        line.send(_chunked(call("greet", {"name": "Ada"}), b"X-Endless: ")[:-2])
        response = asyncio.create_task(line.response())
        for _ in range(40):
            if not response.done():  # Whoever goes on after it may hear of a broken pipe instead.
                line.send(b"a" * 16_384)
                await asyncio.sleep(0)
        assert (await response)[0] == 431


async def test_an_upgrade_keeps_what_the_client_said_of_its_connection() -> None:
    for options in ({"version": "1.0"}, {"version": "1.1"}):
        async with _connected() as line:
            upgrade = ("Connection: Upgrade, close", "Upgrade: h2c")
            line.send(_post(call("greet", {"name": "Ada"}), *upgrade, **options))
            _, headers, body = await line.response()
            assert (_text(body), headers["connection"]) == ("Hello, Ada!", "close")
            assert await line.rest() == b""


async def test_nothing_runs_after_the_last_answer_of_a_connection() -> None:
    ran: list[str] = []
    server = _server()

    @server.tool
    async def effect() -> str:
        """Leave a trace."""
        ran.append("effect")
        return "done"

    listing = request("tools/list")
    async with served(server) as base, raw_client(base) as client:
        client.writer.write(_post(listing))
        await client.read_until(b"}}}")
        last = _post(listing, "Connection: keep-alive", version="1.0")
        client.writer.write(last + _post(call("effect")))
        assert (await client.read_to_end()).count(b"HTTP/1.1") == 1
    assert not ran


@pytest.mark.parametrize("ready", [True, False])
async def test_a_client_that_reads_nothing_is_not_answered_for_ever(ready: bool) -> None:
    calls = 0
    server = _server()

    @server.tool
    async def much() -> str:
        """Say much."""
        nonlocal calls
        calls += 1
        return "x" * 50_000

    for number in range(60):
        server.tool(name=f"tool_{number}", description="y" * 1000)(lambda: "z")
    message = request("tools/list") if ready else call("much")
    async with served(server) as base, raw_client(base, receive_buffer=4096) as client:
        connection = await soon(_only_connection())
        client.writer.write(_post(message) * 3000)
        for _ in range(100):
            await asyncio.sleep(0.01)
        assert connection.transport.get_write_buffer_size() < 1_000_000
        assert calls < 100


async def test_a_client_that_reads_nothing_is_given_up() -> None:
    server = _server()

    @server.tool
    async def much() -> str:
        """Say much."""
        return "x" * 8_000_000

    async with (
        served(server, limits=HttpLimits(body_seconds=0.2, stall_seconds=0.3)) as base,
        raw_client(base, receive_buffer=4096) as client,
    ):
        connection = await soon(_only_connection())
        await client.send(call("much"))
        async with asyncio.timeout(30):
            while connection in connection.state.connections:
                await asyncio.sleep(0.02)


async def _only_connection() -> Any:
    """The server's end of the connection that a test has made."""
    while True:
        found = [one for one in gc.get_objects() if type(one) is Connection and hasattr(one, "transport")]
        alive = [one for one in found if one in one.state.connections]
        if alive:
            return alive[0]
        await asyncio.sleep(0.01)


async def test_whatever_an_author_wrote_runs_in_a_task() -> None:
    """Timeouts and task groups need one. A round that ends at once is begun without; not so its handler."""
    where: dict[str, set[asyncio.Task[Any] | None]] = {}
    server = Server("tasks", version="1")

    async def note(what: str) -> str:
        async with asyncio.timeout(5), asyncio.TaskGroup():
            where.setdefault(what, set()).add(asyncio.current_task())
        return what

    @server.tool
    async def direct() -> str:
        return await note("direct")

    @server.tool
    async def asks(ctx: Context) -> str:
        await note("asks")
        return str((await ctx.elicit("sure?", bool)).data)

    @server.tool
    async def waits(ctx: Context) -> str:
        await asyncio.sleep(0.01)
        return await note("waits")

    @server.prompt
    async def prompt() -> str:
        return await note("prompt")

    @server.resource("note://resource")
    async def resource() -> str:
        return await note("resource")

    elicitation = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    messages = [
        call("direct"),
        call("asks", **elicitation),
        call("waits"),
        request("prompts/get", {"name": "prompt"}),
        request("resources/read", {"uri": "note://resource"}),
    ]
    async with served(server) as base, _line_to(base) as line:
        for _ in range(3):
            for message in messages:
                line.send(_post(message))
                assert b'"result"' in (await line.response())[2]
    assert set(where) == {"direct", "asks", "waits", "prompt", "resource"}
    for tasks in where.values():
        assert None not in tasks
        assert len(tasks) == 3, "a task was used for two calls"


async def test_middleware_runs_in_a_task() -> None:
    server = _server()
    seen: list[asyncio.Task[Any] | None] = []

    @server.middleware
    async def timed(request: Request, call_next: CallNext) -> Outcome:
        async with asyncio.timeout(5):
            seen.append(asyncio.current_task())
            return await call_next(request)

    async with served(server) as base, _line_to(base) as line:
        for message in (call("slowly"), call("greet", {"name": "Ada"}), request("tools/list")):
            line.send(_post(message))
            assert (await line.response())[0] == 200
    assert None not in seen
    assert len(set(seen)) == 3


async def test_what_a_request_puts_into_its_context_is_gone_with_it() -> None:
    who: ContextVar[str] = ContextVar("who")
    before: list[str | None] = []

    def principal(request: Request) -> str:
        before.append(who.get(None))
        who.set("somebody")
        return "somebody"

    server = Server("contexts", version="1", principal=principal, keys=[b"k" * 32])

    @server.tool
    async def asks(ctx: Context) -> str:
        await ctx.elicit(f"are you {who.get()}?", bool)
        return "never"

    elicitation = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    async with served(server) as base, _line_to(base) as line:
        for _ in range(3):
            line.send(_post(call("asks", **elicitation)))
            assert b"are you somebody?" in (await line.response())[2]
    assert before == [None, None, None]


async def test_rounds_that_end_at_once_are_answered_in_their_order() -> None:
    server = _server()

    @server.tool
    async def asks(name: str, ctx: Context) -> str:
        await ctx.elicit(f"are you {name}?", bool)
        return "never"

    elicitation = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    async with served(server) as base, _line_to(base) as line:
        line.send(b"".join(_post(call("asks", {"name": str(n)}, **elicitation)) for n in range(40)))
        for number in range(40):
            assert f"are you {number}?".encode() in (await line.response())[2]
