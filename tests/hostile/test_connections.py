"""Clients that misuse HTTP/1.1: upgrades in numbers, other hosts in the target, half-closed connections."""

import asyncio
import json
from typing import Any

import pytest

from ekiden import Context, HttpLimits, Server
from ekiden.transports.server.http1.connection import Connection
from ekiden.transports.server.http1.connections import Connections
from tests.serving import call, headers_for, post, raw_client, request, served, soon, spawned

_UPGRADE = ("Connection: Upgrade", "Upgrade: h2c")


def _server() -> Server:
    server = Server("guarded", version="1")

    @server.tool
    async def greet(name: str) -> str:
        """Greet someone."""
        return f"Hello, {name}!"

    return server


def _post(message: dict[str, Any], *extra: str, target: str = "/mcp", host: str = "127.0.0.1") -> bytes:
    body = json.dumps(message).encode()
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers_for(message).items()]
    return "\r\n".join([*lines, *extra, "", ""]).encode() + body


def _statuses(said: bytes) -> list[int]:
    return [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]


async def _said(base: str, data: bytes, *, half_close: bool = False) -> list[int]:
    """The statuses of all responses, until the server closes the connection."""
    async with raw_client(base) as client:
        client.writer.write(data)
        if half_close:
            client.writer.write_eof()
        return _statuses(await client.read_to_end())


# Upgrades


async def test_any_number_of_offers_to_upgrade_is_declined_one_after_the_other() -> None:
    offer = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    last = _post(call("greet", {"name": "Ada"}), "Connection: close")
    async with served(_server()) as base:
        assert await _said(base, offer * 600 + last) == [*[405] * 600, 200]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-length": "99999999"}, 413),
    ],
)
@pytest.mark.parametrize("offer", [(), _UPGRADE])
async def test_an_offer_to_upgrade_does_not_change_why_a_request_is_refused(
    changed: dict[str, str], status: int, offer: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"host": "127.0.0.1", "content-length": "5", "content-type": "application/json", **changed}
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), *offer]
    async with served(_server()) as base:
        assert await _said(base, "\r\n".join([*lines, "", "12345"]).encode()) == [status]
    assert not [record for record in caplog.records if record.exc_info]


# Targets


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://127.0.0.1/mcp", "127.0.0.1", 200),
        ("HTTP://LocalHost:8000/mcp?x=1", "localhost:8000", 200),
        ("http://evil.example/mcp", "localhost", 421),
        ("http://evil.example/mcp", "evil.example", 421),
        ("http://localhost/mcp", "evil.example", 421),
        ("http://localhost@evil.example/mcp", "localhost", 421),
        ("http://evil.example?/mcp", "localhost", 421),
        ("ftp://localhost/mcp", "localhost", 400),
        ("//evil.example/mcp", "localhost", 404),
    ],
)
async def test_the_host_in_a_target_counts_as_the_host_header_does(
    target: str, host: str, status: int
) -> None:
    message = call("greet", {"name": "Ada"})
    async with served(_server()) as base:
        assert await _said(base, _post(message, "Connection: close", target=target, host=host)) == [status]


async def test_a_server_for_every_host_is_not_one_for_every_page() -> None:
    message = call("greet", {"name": "Ada"})
    async with served(_server(), allowed_hosts=["*"]) as base:
        for extra, status in ((), 200), (("Origin: https://evil.example",), 403), (("Origin: null",), 403):
            sent = _post(message, "Connection: close", *extra, host="anything.example")
            assert await _said(base, sent) == [status]


@pytest.mark.parametrize("line", ["X-Folded: a\r\n b", "X-Spaced : a", "Transfer-Encoding : chunked"])
async def test_a_header_that_two_parsers_could_read_differently_is_refused(line: str) -> None:
    async with served(_server()) as base:
        assert await _said(base, _post(call("greet", {"name": "Ada"}), line)) == [400]


async def test_many_headers_are_refused_although_they_are_short() -> None:
    many = b"POST /mcp HTTP/1.1\r\n" + b"a:\r\n" * 10_000 + b"\r\n"
    async with served(_server()) as base:
        assert await _said(base, many) == [431]


async def test_a_head_counts_as_what_it_takes_in_memory() -> None:
    message = call("greet", {"name": "Ada"})
    async with served(_server()) as base:
        for count, status in ((450, 200), (550, 431)):  # A name alone takes more than ten times its bytes.
            sent = _post(message, "Connection: close", *(f"{number:x}:" for number in range(count)))
            assert await _said(base, sent) == [status]


async def test_many_trailers_are_refused_although_they_are_short() -> None:
    head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers_for(request("tools/list")).items())
    async with served(_server()) as base:
        assert await _said(base, head.encode() + b"\r\n2\r\n{}\r\n0\r\n" + b"a:\r\n" * 200_000) == [431]


async def test_a_body_in_tiny_pieces_takes_no_more_memory_than_its_bytes() -> None:
    pieces: list[int] = []

    class Watched(Connection):
        def on_body(self, body: bytes) -> None:
            super().on_body(body)
            kept = [value for value in vars(self).values() if isinstance(value, (bytes, bytearray))]
            lists = [value for value in vars(self).values() if isinstance(value, list)]
            pieces.append(sum(map(len, lists)))
            assert sum(map(len, kept)) <= 4 * self._size + 200

    from uvicorn import Config
    from uvicorn.server import ServerState

    application = _server().asgi(limits=HttpLimits(body=50_000))
    connection = Connections(application, Watched)(Config(application), ServerState(), {})
    connection.connection_made(asyncio.Transport({"peername": ("127.0.0.1", 1)}))
    head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers_for(request("tools/list")).items())
    connection.data_received(head.encode() + b"\r\n" + b"2\r\n[]\r\n" * 10_000)
    assert len(pieces) >= 10_000  # What comes at once may be read in several pieces.
    assert max(pieces) == 0


class _Reset(asyncio.Transport):
    """A connection whose client was gone before anybody could ask for its address."""

    was_aborted = False

    def __init__(self) -> None:
        super().__init__({"peername": None})

    def abort(self) -> None:
        self.was_aborted = True

    def pause_reading(self) -> None:
        """Nothing is sent here."""

    resume_reading = pause_reading


async def test_a_client_that_is_gone_at_once_cannot_pass_for_a_worker_that_names_an_address() -> None:
    from uvicorn import Config
    from uvicorn.server import ServerState

    ran: list[str | None] = []
    server = Server("of addresses", keys=[b"k" * 32])

    @server.tool
    async def greet(name: str, ctx: Context) -> str:
        ran.append(ctx.request.address)
        return name

    async with server.running():
        application = server.asgi()
        connection = Connections(application)(Config(application), ServerState(), {})
        transport = _Reset()
        connection.connection_made(transport)
        connection.data_received(_post(call("greet", {"name": "Ada"}), "x-ekiden-address: 203.0.113.9"))
        for _ in range(20):
            await asyncio.sleep(0)
    assert (ran, transport.was_aborted) == ([], True)


# Half-closed connections


@pytest.mark.parametrize("requests", [1, 5, 200])
async def test_a_client_that_closes_its_side_gets_all_answers(requests: int) -> None:
    data = _post(call("greet", {"name": "Ada"})) * requests
    async with served(_server()) as base:
        for _ in range(20):
            assert await _said(base, data, half_close=True) == [200] * requests


_RUN = """
import sys
from ekiden import Server
server = Server("run", version="1")
@server.tool
async def greet(name: str) -> str:
    "Greet someone."
    return f"Hello, {name}!"
server.run("http", port=int(sys.argv[1]))
"""


async def test_a_client_that_closes_its_side_gets_all_answers_of_a_server_of_its_own() -> None:
    data = _post(call("greet", {"name": "Ada"})) * 3
    async with spawned(_RUN) as server:
        for _ in range(20):
            assert await _said(server.base, data, half_close=True) == [200] * 3


async def test_a_request_that_its_client_ends_in_the_middle_is_not_answered() -> None:
    data = _post(call("greet", {"name": "Ada"}))
    async with served(_server()) as base:
        assert await _said(base, data + data[:-5], half_close=True) == [200]
        assert await _said(base, data[:-5], half_close=True) == []


async def test_what_cannot_be_read_is_refused_on_a_half_closed_connection_too() -> None:
    async with served(_server()) as base:
        data = _post(call("greet", {"name": "Ada"})) + b"nonsense\r\n\r\n"
        assert await _said(base, data, half_close=True) == [200, 400]


async def test_a_long_call_is_cancelled_soon_after_its_client_has_closed_its_side() -> None:
    server, begun, cancelled = _server(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def endless() -> str:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    async with served(server) as base, raw_client(base) as client:
        client.writer.write(_post(call("endless")))
        await soon(begun.wait())
        client.writer.write_eof()
        await soon(cancelled.wait())
        assert await client.read_to_end() == b""


# Encodings


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate", "gzip, gzip", "x-unknown", ""])
async def test_a_body_that_says_it_is_packed_is_not_read_as_if_it_were_not(
    encoding: str, mounted: bool
) -> None:
    message = call("greet", {"name": "Ada"})
    async with served(_server(), mounted=mounted) as base:
        refused = await post(base, message, content_encoding=encoding)
        assert (refused.status_code, refused.headers["accept-encoding"]) == (415, "identity")
        assert (await post(base, message, content_encoding="Identity")).status_code == 200


@pytest.mark.parametrize(
    "coding",
    [
        "gzip, chunked",
        "identity, chunked",
        "chunked\t,chunked",
        "gzip\r\nTransfer-Encoding: chunked",
        "chunked\r\ntransfer-encoding: chunked",
    ],
)
async def test_a_transfer_coding_that_is_not_undone_is_refused(coding: str) -> None:
    message = call("greet", {"name": "Ada"})
    body = json.dumps(message).encode()
    lines = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", f"Transfer-Encoding: {coding}"]
    lines += [f"{name}: {value}" for name, value in headers_for(message).items()]
    sent = "\r\n".join([*lines, "", ""]).encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with served(_server()) as base:
        assert await _said(base, sent) in ([501], [400])
