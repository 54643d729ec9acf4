"""Clients in numbers: connections that send nothing, answers that nobody reads, bodies that do not end."""

import asyncio
import contextlib
import json
import resource
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from uvicorn.server import ServerState

from ekiden import HttpLimits, HttpRequest, Server
from ekiden.transports.server.http1.crowd import default_cap
from ekiden.transports.server.http1.exchange import Exchange
from ekiden.transports.server.http1.unread import Unread
from ekiden.transports.server.http1.writing import ResponseWriter
from ekiden.wire.incoming import Incoming
from tests.serving import PATIENCE, call, headers_for, post, post_raw, raw_client, served

_MANY = 20
_LARGE = 16_000_000
"""More than the buffers of a connection take."""


def _server() -> Server:
    server = Server("crowded", version="1", keys=[b"k" * 32])
    began = asyncio.Event()

    @server.tool
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool
    async def large() -> str:
        """Say much."""
        return "x" * _LARGE

    @server.tool
    async def hold() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return ""

    @server.route("/hook", methods=["POST"])
    async def hook(request: HttpRequest) -> str:
        if began.is_set():
            return "done"
        began.set()
        await asyncio.sleep(PATIENCE)
        return ""

    @server.route("/began", methods=["GET"])
    async def has_begun(request: HttpRequest) -> str:
        await began.wait()
        return "yes"

    return server


def _spelled(name: str) -> bytes:
    message = call(name, {"text": "hi"} if name == "echo" else {})
    body = json.dumps(message).encode()
    lines = [f"{field}: {value}\r\n" for field, value in headers_for(message).items()]
    head = f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{''.join(lines)}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _leave(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@asynccontextmanager
async def _connected(
    base: str, sent: bytes, host: str = "127.0.0.1", count: int = _MANY
) -> AsyncGenerator[list[asyncio.StreamReader], None]:
    """Clients of one address that have sent something, and send no more."""
    readers: list[asyncio.StreamReader] = []
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", urlsplit(base).port, local_addr=(host, 0)
            )
            stack.callback(_leave, writer)
            writer.write(sent)
            readers.append(reader)
        await asyncio.sleep(0.1)  # What was sent is on its way.
        yield readers


async def _status(base: str, host: str) -> bytes:
    """What a client of an address gets, over a connection of its own."""
    async with (
        asyncio.timeout(PATIENCE),
        _connected(base, _spelled("echo"), host, count=1) as (reader,),
    ):
        with contextlib.suppress(ConnectionResetError):
            return (await reader.readline()).strip()
    return b"reset"


# Connections


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-slow: "])
async def test_whoever_opens_connections_and_sends_nothing_keeps_no_other_address_out(sent: bytes) -> None:
    async with (
        asyncio.timeout(2 * PATIENCE),
        served(_server(), limits=HttpLimits(connections=_MANY)) as base,
        _connected(base, sent),
    ):
        for _ in range(3):
            assert await _status(base, "127.0.0.2") == b"HTTP/1.1 200 OK"


async def test_a_request_that_is_answered_makes_no_room() -> None:
    async with (
        asyncio.timeout(2 * PATIENCE),
        served(_server(), limits=HttpLimits(connections=_MANY), grace=1, quiet=False) as base,
        _connected(base, _spelled("hold")) as readers,
    ):
        assert (await _status(base, "127.0.0.2")).startswith(b"HTTP/1.1 503")
        assert not any(reader.at_eof() for reader in readers)


async def test_by_default_some_file_descriptors_are_left_to_everything_else() -> None:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    cap = default_cap()
    assert cap is None or most // 2 <= cap < most


# Answers


async def test_answers_that_nobody_reads_take_bounded_memory() -> None:
    limits = HttpLimits(unread=3 * _LARGE)
    async with (
        asyncio.timeout(2 * PATIENCE),
        served(_server(), limits=limits) as base,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(raw_client(base, receive_buffer=16_384)) for _ in range(8)]
        cut = 0
        for client in clients:
            with contextlib.suppress(ConnectionError):  # It may be cut already.
                await client.send(call("large"))
                await client.read_until(b"\r\n\r\n")
                client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for client in clients:
            client.reader._transport.resume_reading()  # type: ignore[attr-defined]
            try:
                await client.reader.readexactly(_LARGE)
            except (asyncio.IncompleteReadError, ConnectionError):
                cut += 1
        assert 4 <= cut < 8
        assert (await post(base, call("large"))).status_code == 200


class _Slow:
    """A connection whose client reads nothing."""

    def __init__(self, network: str, order: list[str | None]) -> None:
        self.network: str | None = network
        self.transport = self
        self._order = order

    def abort(self) -> None:
        self._order.append(self.network)


def test_of_answers_that_nobody_reads_those_are_cut_of_whoever_has_most() -> None:
    cut: list[str | None] = []
    unread = Unread(10)
    patient = _Slow("patient", cut)
    unread.hold(patient, 4)
    for _ in range(5):
        unread.hold(_Slow("greedy", cut), 3)
    assert cut == ["greedy"] * 3
    unread.hold(patient, 1)  # It has read some of it meanwhile.
    unread.hold(_Slow("greedy", cut), 3)
    assert cut == ["greedy"] * 3
    unread.release(patient)


# Bodies


@pytest.mark.parametrize("mounted", [False, True])
async def test_bodies_that_do_not_end_take_bounded_memory(mounted: bool) -> None:
    message = call("echo", {"text": "hi"})
    length = {"content-length": "4000000"}
    limits = HttpLimits(bodies=4_000_000)
    large = json.dumps(call("echo", {"text": "x" * 500_000})).encode()
    async with (
        asyncio.timeout(2 * PATIENCE),
        served(_server(), limits=limits, mounted=mounted) as base,
        raw_client(base) as client,
    ):
        await client.send_head(headers_for(message) | length)
        client.writer.write(b"x" * 3_900_000)
        await client.writer.drain()
        async with asyncio.timeout(PATIENCE):
            while (answered := await post_raw(base, large, headers_for(message))).status_code == 200:
                await asyncio.sleep(0.01)  # The server reads in its own time.
        assert (answered.status_code, answered.headers["retry-after"]) == (503, "5")
        assert (await post(base, message)).status_code == 200
        client.abort()
        async with asyncio.timeout(PATIENCE):
            while (await post_raw(base, large, headers_for(message))).status_code == 503:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("mounted", [False, True])
async def test_the_body_of_a_page_counts_until_it_is_answered(mounted: bool) -> None:
    limits = HttpLimits(bodies=4_000_000)
    async with (
        asyncio.timeout(2 * PATIENCE),
        served(_server(), limits=limits, mounted=mounted, grace=1, quiet=False) as base,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(post_raw(base, b"x" * 3_000_000, {}, path="/hook"))
        assert (await post_raw(base, b"", {}, path="/began", method="GET")).text == "yes"
        assert (await post_raw(base, b"x" * 3_000_000, {}, path="/hook")).status_code == 503
        assert (await post_raw(base, b"x", {}, path="/hook")).text == "done"
        first.cancel()


async def test_the_last_event_of_a_stream_that_is_not_read_counts_at_once() -> None:
    """It may be the largest, and comes when the client is known not to read."""
    loop, buffered = asyncio.get_running_loop(), [0]

    class Transport:
        def write(self, data: bytes) -> None:
            buffered[0] += len(data)

        def get_write_buffer_size(self) -> int:
            return buffered[0]

        def abort(self) -> None:
            cut.append(buffered[0])

    class Writer(ResponseWriter):
        def _caught_up(self) -> None:
            pass

    cut: list[int] = []
    writer = Writer(Unread(1_000_000), ServerState(), loop)
    writer.transport = Transport()
    exchange = Exchange(writer, Incoming("POST", "/mcp", {}, None, b""), True)
    await exchange.send({"type": "http.response.start", "status": 200, "headers": []})
    sending = asyncio.create_task(
        exchange.send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
    )
    writer.pause_writing()
    await asyncio.sleep(0)
    assert not cut
    await exchange.send({"type": "http.response.body", "body": b"x" * 2_000_000})
    assert cut
    sending.cancel()
