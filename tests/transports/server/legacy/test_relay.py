"""Requests handed over between workers: whole, as a stream, and when the other side goes away."""

import asyncio
import contextlib
import gc
import json
import socket
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ekiden.transports.server.legacy.relay import UnixRelay
from ekiden.wire.incoming import Incoming
from tests.serving import soon

OWNER = "0badf00d"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def relay(tmp_path: Path) -> UnixRelay:
    return UnixRelay(str(tmp_path), "12345678")


@asynccontextmanager
async def owner(folder: Path, answer: Answer) -> AsyncGenerator[None, None]:
    server = await asyncio.start_unix_server(answer, folder / OWNER)
    async with server:
        yield


def incoming(body: bytes = b"{}") -> Incoming:
    pairs = [
        (b"host", b"localhost"),
        (b"mcp-session-id", b"0badf00d.abc"),
        (b"connection", b"keep-alive"),
        (b"transfer-encoding", b"chunked"),
    ]
    return Incoming("POST", "/mcp", dict(pairs), None, body)


class Client:
    """The client's end, as ASGI has it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Any) -> None:
        self.sent.append(event)

    @property
    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent[1:])


def test_the_owner_is_named_by_the_id(relay: UnixRelay) -> None:
    assert relay.owner("0badf00d.abc") == OWNER
    assert relay.owner(relay.prefix + "abc") is None
    for nobody in ("", "abc", "0badf00", "0BADF00D.x", "../../../x.y", "0badf00d/..x"):
        assert relay.owner(nobody) is None


async def test_a_request_arrives_whole_and_without_what_concerned_its_connection(
    relay: UnixRelay, tmp_path: Path
) -> None:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        seen.append(await reader.readexactly(2))
        writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\ndate: today\r\nx-own: 1\r\n\r\nok")
        writer.close()

    client = Client()
    async with owner(tmp_path, answer):
        assert await soon(relay.forward(OWNER, incoming(), client.receive, client.send))
    head = seen[0].decode()
    assert head.startswith("POST /mcp HTTP/1.1\r\n")
    assert "chunked" not in head
    assert "connection: close" in head
    assert "content-length: 2" in head
    assert client.sent[0]["status"] == 202
    assert client.sent[0]["headers"] == [(b"content-length", b"2"), (b"x-own", b"1")]
    assert client.body == b"ok"


async def test_a_stream_passes_as_it_comes_and_ends_with_the_owner(relay: UnixRelay, tmp_path: Path) -> None:
    first, die = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await writer.drain()
        await first.wait()
        writer.write(b"6\r\none\n\n\n\r\n")
        await writer.drain()
        await die.wait()
        writer.close()

    client = Client()
    async with owner(tmp_path, answer):
        passing = asyncio.create_task(relay.forward(OWNER, incoming(), client.receive, client.send))
        async with asyncio.timeout(30):
            while not client.sent:
                await asyncio.sleep(0.01)
        assert client.sent[0]["status"] == 200
        first.set()
        async with asyncio.timeout(30):
            while client.body != b"one\n\n\n":
                await asyncio.sleep(0.01)
        die.set()
        assert await soon(passing)
    assert not client.sent[-1].get("more_body", False)


async def test_a_client_that_leaves_leaves_the_owner(relay: UnixRelay, tmp_path: Path) -> None:
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await reader.read()
        left.set()
        writer.close()

    client = Client()
    async with owner(tmp_path, answer):
        passing = asyncio.create_task(relay.forward(OWNER, incoming(), client.receive, client.send))
        async with asyncio.timeout(30):
            while not client.sent:
                await asyncio.sleep(0.01)
        client.gone.set()
        await soon(left.wait())
        await soon(passing)


async def test_an_owner_that_is_not_there_is_told_and_nothing_is_sent(
    relay: UnixRelay, tmp_path: Path
) -> None:
    client = Client()
    assert not await soon(relay.forward(OWNER, incoming(), client.receive, client.send))

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with owner(tmp_path, die):
        assert not await soon(relay.forward(OWNER, incoming(), client.receive, client.send))
    assert client.sent == []


async def test_a_long_answer_is_framed_by_the_connection_that_carries_it(
    relay: UnixRelay, tmp_path: Path
) -> None:
    body = b"[" + b"1," * 100_000 + b"1]"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
        writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    client = Client()
    async with owner(tmp_path, answer):
        assert await soon(relay.forward(OWNER, incoming(), client.receive, client.send))
    # It comes in pieces: with a length and in chunks at once it could be read in two ways.
    assert len(client.sent) > 3
    assert client.sent[0]["headers"] == [(b"content-type", b"application/json")]
    assert client.body == body


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200"])
async def test_a_request_that_an_owner_had_when_it_died_gets_an_error_and_is_not_begun_anew(
    relay: UnixRelay, tmp_path: Path, said: bytes
) -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    call = b'{"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "pay"}}'
    told = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'
    clients = [Client(), Client()]
    async with owner(tmp_path, die):
        served = [
            await soon(relay.forward(OWNER, incoming(body), client.receive, client.send))
            for body, client in zip((call, told), clients, strict=True)
        ]
    assert served == [True, False]
    assert clients[1].sent == []
    assert clients[0].sent[0]["status"] == 200
    answer = json.loads(clients[0].body)
    assert (answer["id"], answer["error"]["code"]) == ("c", -32603)
    assert "send the request again" in answer["error"]["message"]


async def test_hundreds_of_requests_may_wait_for_a_worker_that_is_busy(tmp_path: Path) -> None:
    relay = UnixRelay(str(tmp_path), OWNER)
    async with await relay.listen(asyncio.Protocol):
        with contextlib.ExitStack() as stack:
            for _ in range(300):  # It takes none of them: this is one pass of its event loop.
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(tmp_path / OWNER))


class _NoDescriptors:
    def hand_on(self, address: str | None, now: float) -> bool:
        return False

    def handed_on(self) -> None:
        raise AssertionError("none was taken")


async def test_a_worker_without_descriptors_refuses_and_the_session_is_not_lost(
    relay: UnixRelay, tmp_path: Path
) -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError

    relay.descriptors = _NoDescriptors()
    client = Client()
    async with owner(tmp_path, never):
        assert await soon(relay.forward(OWNER, incoming(), client.receive, client.send))
    assert client.sent[0]["status"] == 503
    assert (b"retry-after", b"1") in client.sent[0]["headers"]


async def test_an_owner_that_cannot_be_reached_now_is_not_taken_to_be_gone(
    relay: UnixRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(asyncio, "open_unix_connection", full)
    client = Client()
    assert await soon(relay.forward(OWNER, incoming(), client.receive, client.send))
    assert client.sent[0]["status"] == 503


@pytest.mark.parametrize("said", [b"x" * 1000, b""])
async def test_a_request_that_was_handed_over_is_freed_at_once(
    relay: UnixRelay, tmp_path: Path, said: bytes
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if said:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(said), said))
        writer.close()

    client = Client()
    known = weakref.ref(client)
    gc.collect()
    gc.disable()
    try:
        async with owner(tmp_path, answer):
            was_there = await soon(relay.forward(OWNER, incoming(), client.receive, client.send))
            await asyncio.sleep(0)  # What waited for the client to leave is cancelled.
            assert client.body == said
            del client
            await asyncio.sleep(0)
        assert (was_there, known()) == (bool(said), None)
    finally:
        gc.enable()
