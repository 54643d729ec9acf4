"""What authentication looks up at a hostile server: bounded, whatever the server calls it."""

import asyncio
import contextlib
import gzip
import json
import tracemalloc
from collections.abc import AsyncGenerator, Generator

import httpx2
import pytest

from ekiden import Client, TooMuch
from ekiden.transports.client.over_httpx import HttpxClient
from tests.serving import PATIENCE, listening_socket, soon

from .evil import evil, says

FLOOD = b"x" * 65536
MOST_SENT = 64 * 1024 * 1024
"""What a server gets rid of before a test fails; sockets alone hold some of it."""


class Discovery(httpx2.Auth):
    """Reads a document before every message, and the words of every refusal, as OAuth does."""

    requires_response_body = True

    def __init__(self, place: str) -> None:
        self._place = place

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        yield httpx2.Request("GET", self._place)
        yield request


class Endless:
    """Answers every request with a body that does not end."""

    def __init__(self, status: str, kind: str) -> None:
        self.head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n\r\n".encode()
        self.sent = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.head)
            while self.sent < MOST_SENT:
                writer.write(FLOOD)
                await writer.drain()
                self.sent += len(FLOOD)
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest.fixture(params=["application/json", "text/event-stream"])
async def endless(request: pytest.FixtureRequest) -> AsyncGenerator[tuple[Endless, str], None]:
    server = Endless("200 OK", request.param)
    async with await asyncio.start_server(server.serve, sock=listening_socket()) as listener:
        yield server, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


async def test_a_document_without_an_end_is_not_read_to_its_end(endless: tuple[Endless, str]) -> None:
    server, base = endless
    http = HttpxClient(f"{base}/mcp", limit=1000, auth=Discovery(f"{base}/.well-known/any"))
    with pytest.raises(TooMuch, match="1048576 bytes to authentication"):
        await soon(http.send("POST", {}, b"{}"))
    await http.close()
    assert server.sent < MOST_SENT


async def test_the_words_of_a_refusal_are_not_read_without_an_end() -> None:
    refusing = Endless("401 Unauthorized", "application/json")
    async with await asyncio.start_server(refusing.serve, sock=listening_socket()) as listener:
        base = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        http = HttpxClient(f"{base}/mcp", limit=1000, auth=_Reading())
        with pytest.raises(TooMuch, match="1048576 bytes to authentication"):
            await soon(http.send("POST", {}, b"{}"))
        await http.close()
    assert refusing.sent < MOST_SENT


class _Reading(httpx2.Auth):
    requires_response_body = True

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        yield request


class _Token(httpx2.Auth):
    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["authorization"] = "Bearer token"
        yield request


async def test_a_message_may_be_as_large_as_the_clients_limits_allow() -> None:
    text = "x" * 3_000_000
    result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
    body = json.dumps({"jsonrpc": "2.0", "id": "ID", "result": result}).encode()
    async with (
        evil({"large": says(body)}) as server,
        Client(server.url, auth=_Token(), timeout=PATIENCE) as client,
    ):
        got = await client.call_tool("large")
    assert getattr(got.content[0], "text", None) == text


def _packed(size: int, times: int = 1) -> bytes:
    """Zeros, packed with gzip as often as this."""
    data = b"\0" * size
    for _ in range(times):
        data = gzip.compress(data)
    return data


@pytest.mark.parametrize(("status", "times"), [("200 OK", 1), ("200 OK", 2), ("401 Unauthorized", 2)])
async def test_a_packed_document_is_bounded_by_what_is_in_it(status: str, times: int) -> None:
    body = _packed(MOST_SENT, times)
    encoding = ", ".join(["gzip"] * times)
    head = f"HTTP/1.1 {status}\r\ncontent-encoding: {encoding}\r\ncontent-length: {len(body)}\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode() + body)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, sock=listening_socket()) as listener:
        base = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        http = HttpxClient(f"{base}/mcp", limit=1000, auth=Discovery(f"{base}/metadata"))
        tracemalloc.start()
        try:
            with pytest.raises(TooMuch, match="to authentication"):
                await soon(http.send("POST", {}, b"{}"))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            await http.close()
    assert peak < MOST_SENT // 4


async def test_a_packed_document_of_ordinary_size_is_read() -> None:
    read: list[bytes] = []

    class Reading(httpx2.Auth):
        requires_response_body = True

        def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
            found = yield httpx2.Request("GET", f"{base}/metadata")
            read.append(found.content)
            yield request

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = gzip.compress(b'{"issuer": "me"}')
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, sock=listening_socket()) as listener:
        base = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        http = HttpxClient(f"{base}/mcp", limit=1000, auth=Reading())
        response = await soon(http.send("POST", {}, b"{}"))
        await response.close()
        await http.close()
    assert read == [b'{"issuer": "me"}']
