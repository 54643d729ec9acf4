"""No application below a route can make a client, or a proxy, take a part of a response for the next one."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.staticfiles import StaticFiles

from ekiden import HttpResponse, Server
from ekiden.transports.server.http1.framing import begin
from tests.serving import raw_client, served

HIDDEN = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nset-cookie: evil=1\r\n\r\nbad"
"""A response of its own, where a body should be."""

Headers = Sequence[tuple[bytes, bytes]]
LENGTH = b"content-length"


class App:
    """An ASGI application that sends these events, whatever it is asked."""

    def __init__(self, status: int, headers: Headers, *pieces: bytes) -> None:
        self.status, self.headers, self.pieces = status, headers, pieces

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": list(self.headers)})
        for place, piece in enumerate(self.pieces, 1):
            more = place < len(self.pieces)
            await send({"type": "http.response.body", "body": piece, "more_body": more})


class Response(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes
    rest: bytes
    """What follows it on the connection."""


def read(data: bytes, method: str) -> Response:
    """The first response as RFC 9112, 6.3, has it. What two readers could read differently fails."""
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    headers = dict(pairs)
    assert len(headers) == len(pairs), f"a header is there twice: {head!r}"
    status = int(first.split(b" ")[1])
    assert not (LENGTH in headers and b"transfer-encoding" in headers), head
    if method == "HEAD" or status in (204, 304):
        return Response(status, headers, b"", rest)
    if b"transfer-encoding" in headers:
        body = b""
        while True:
            size, _, rest = rest.partition(b"\r\n")
            count = int(size, 16)
            body, rest = body + rest[:count], rest[count + 2 :]
            if not count:
                return Response(status, headers, body, rest)
    if LENGTH in headers:
        size = int(headers[LENGTH])
        return Response(status, headers, rest[:size], rest[size:])
    return Response(status, headers, rest, b"")


async def asked(base: str, path: str, method: str) -> bytes:
    """All that comes on a connection for a request, and for one that follows it."""
    async with raw_client(base) as client:
        for line in (f"{method} {path}", "GET /healthz"):
            client.writer.write(f"{line} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        client.writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        return await client.read_to_end()


def follows(rest: bytes) -> list[bytes]:
    """The bodies of the responses that follow."""
    bodies: list[bytes] = []
    while rest:
        response = read(rest, "GET")
        bodies.append(response.body)
        rest = response.rest
    return bodies


HONEST = {
    "whole": App(200, [], b"hello"),
    "with its length": App(200, [(LENGTH, b"5")], b"hello"),
    "in capitals": App(200, [(b"Content-Length", b"5")], b"hello"),
    "in pieces": App(200, [], b"he", b"", b"llo"),
    "in pieces, with its length": App(200, [(LENGTH, b"5")], b"he", b"llo", b""),
    "as if it were chunked": App(200, [(b"transfer-encoding", b"chunked")], b"hello"),
    "of no known status": App(299, [], b"hello"),
    "that wants to be kept": App(200, [(b"connection", b"keep-alive"), (b"keep-alive", b"5")], b"hello"),
}
BROKEN = {
    "longer than it says": App(200, [(LENGTH, b"2")], b"hi" + HIDDEN),
    "longer in a later piece": App(200, [(LENGTH, b"2")], b"hi", HIDDEN),
    "shorter than it says": App(200, [(LENGTH, b"900")], b"hi"),
    "of two lengths": App(200, [(LENGTH, b"2"), (LENGTH, b"9")], b"hi"),
    "of an odd length": App(200, [(LENGTH, b"+2")], b"hi"),
    "with a line break in a value": App(200, [(b"x-a", b"1\r\nset-cookie: evil=1")], b"hi"),
    "with half a line break": App(200, [(b"x-a", b"1\nset-cookie: evil=1")], b"hi"),
    "with a line break in a name": App(200, [(b"x\r\nset-cookie: evil=1\r\nx", b"1")], b"hi"),
    "with a space in a name": App(200, [(b"content-length ", b"2")], b"hi"),
    "with a null": App(200, [(b"x-a", b"1\x00")], b"hi"),
    "provisional": App(103, [], HIDDEN),
    "of no status": App(0, [], HIDDEN),
}
WITHOUT_BODY = {
    "not modified": App(304, [(LENGTH, b"%d" % len(HIDDEN))], HIDDEN),
    "not modified, in pieces": App(304, [], HIDDEN, HIDDEN),
    "nothing there": App(204, [], HIDDEN),
    "nothing there, with a length": App(204, [(LENGTH, b"%d" % len(HIDDEN))], HIDDEN),
}
ALL = {**HONEST, **BROKEN, **WITHOUT_BODY}


@pytest.fixture(scope="module")
def names() -> dict[str, str]:
    return {what: f"/app{number}" for number, what in enumerate(ALL)}


@pytest.fixture
async def base(names: dict[str, str], tmp_path: Path) -> AsyncGenerator[str, None]:
    server = Server("s")
    for what, app in ALL.items():
        server.route(names[what], app=app)
    (tmp_path / "large.txt").write_bytes(HIDDEN * 5000)
    server.route("/files", app=StaticFiles(directory=tmp_path))

    @server.route("/page")
    async def page(_: Any) -> HttpResponse:
        return HttpResponse(HIDDEN, 204)

    async with served(server) as url:
        yield url


async def test_what_is_in_order_is_answered_and_so_is_what_follows(base: str, names: dict[str, str]) -> None:
    for what in HONEST:
        for method, body in (("GET", b"hello"), ("HEAD", b"")):
            response = read(await asked(base, names[what], method), method)
            assert (what, method, response.body) == (what, method, body)
            assert (what, follows(response.rest)) == (what, [b"ok\n", b"ok\n"])


async def test_what_is_broken_ends_the_connection_and_says_nothing_more(
    base: str, names: dict[str, str]
) -> None:
    for what in BROKEN:
        for method in ("GET", "HEAD"):
            data = await asked(base, names[what], method)
            response = read(data, method)
            assert (what, b"set-cookie" in response.headers) == (what, False)
            assert (what, b"evil" in data) == (what, False)
            assert (what, set(follows(response.rest)) <= {b"ok\n"}) == (what, True)


async def test_where_no_body_may_be_there_is_none(base: str, names: dict[str, str]) -> None:
    for path in [*(names[what] for what in WITHOUT_BODY), "/page"]:
        for method in ("GET", "HEAD"):
            data = await asked(base, path, method)
            assert b"evil" not in data
            assert follows(read(data, method).rest) == [b"ok\n", b"ok\n"]


async def test_a_large_file_is_sent_with_its_length_alone(base: str) -> None:
    for method, size in (("GET", len(HIDDEN) * 5000), ("HEAD", 0)):
        response = read(await asked(base, "/files/large.txt", method), method)
        assert len(response.body) == size
        assert response.headers[LENGTH] == b"%d" % (len(HIDDEN) * 5000)
        assert follows(response.rest) == [b"ok\n", b"ok\n"]


def _anything(source: random.Random) -> App:
    headers = [
        (source.choice([LENGTH, b"Transfer-Encoding", b"x-a", b"connection", b"x b", b""]), value)
        for value in source.choices([b"2", b"5", b"chunked", b"close", b"a\r\nb: c", b"", b"-1"], k=2)
    ]
    pieces = source.choices([b"", b"hi", b"hello", HIDDEN], k=source.randint(1, 4))
    return App(source.choice([200, 204, 304, 404, 100, 999, 1000]), headers[: source.randint(0, 2)], *pieces)


async def test_whatever_an_application_sends_what_follows_is_the_next_answer() -> None:
    server = Server("s")
    apps = [_anything(random.Random(seed)) for seed in range(200)]
    for number, app in enumerate(apps):
        server.route(f"/{number}", app=app)
    async with served(server) as base:

        async def check(number: int) -> None:
            for method in ("GET", "HEAD"):
                response = read(await asked(base, f"/{number}", method), method)
                assert b"set-cookie" not in response.headers
                assert response.body in (b"", b"".join(apps[number].pieces)[: len(response.body)])
                assert set(follows(response.rest)) <= {b"ok\n"}, (number, method)

        for start in range(0, len(apps), 20):
            await asyncio.gather(*map(check, range(start, min(start + 20, len(apps)))))


def test_a_response_to_be_closed_is_not_chunked() -> None:
    framing = begin("GET", 200, [(b"connection", b"close")], None, keep_alive=True)
    assert (framing.closes, framing.is_chunked, framing.piece(b"hi", more=True)) == (True, False, b"hi")
