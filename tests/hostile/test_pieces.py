"""What servers send in very many small pieces takes the memory of its bytes, and others have their turn."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ekiden.transports.client.arriving import Arriving
from ekiden.transports.client.channel import ChannelLink
from ekiden.transports.client.http_connection import HttpConnection, HttpExchange
from ekiden.transports.client.link import Outgoing
from ekiden.transports.client.over_httpx import _Response  # pyright: ignore[reportPrivateUsage]
from ekiden.transports.client.process import ProcessLink
from ekiden.transports.client.streamable import StreamableLink
from ekiden.wire import sse
from tests.serving import soon

_PIECES = 50_000


def _kept(work: Callable[[], object]) -> int:
    """The bytes that are taken when something is done."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


async def test_a_body_in_pieces_of_two_bytes_takes_its_bytes() -> None:
    exchange = HttpExchange(cast("HttpConnection", None), 10_000_000)
    pieces = [bytes([65 + number % 26, 66]) for number in range(_PIECES)]

    def take() -> None:
        for piece in pieces:
            exchange.on_body(bytes(bytearray(piece)))

    assert _kept(take) < 2 * 2 * _PIECES  # Over 3 MB, before.
    exchange.complete = True
    exchange._connection = cast("Any", SimpleNamespace(release=lambda _: None))  # pyright: ignore[reportPrivateUsage]
    assert await exchange.read() == b"".join(pieces)


async def test_so_does_one_over_httpx() -> None:
    taken = [0]

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(_PIECES):
            yield bytes([number % 256, 1])
        taken[0] = tracemalloc.get_traced_memory()[0]

    async def close() -> None:
        pass

    response: Any = SimpleNamespace(status_code=200, headers={}, aiter_bytes=pieces, aclose=close)
    reading = _Response(response, 10_000_000, Arriving().part())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert len(await reading.read()) == 2 * _PIECES
    finally:
        tracemalloc.stop()
    assert taken[0] - before < 2 * 2 * _PIECES + 20_000


@pytest.mark.parametrize("line", [b"data:\n", b"data:ab\n"])
def test_an_event_of_very_many_lines_takes_its_bytes(line: bytes) -> None:
    decoder, chunk = sse.Decoder(10_000_000), line * _PIECES
    assert _kept(lambda: list(decoder.feed(chunk))) < 2 * len(chunk)
    (event,) = decoder.feed(b"\n")
    assert event.data == b"\n".join([line[5:-1]] * _PIECES)


class _Turns:
    """Counts the turns that others have meanwhile."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.get_running_loop().create_task(self._take())

    async def _take(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    def end(self) -> int:
        self._task.cancel()
        return self.count


class _Deaf:
    def on_notification(self, message: Any) -> None:
        pass

    async def on_request(self, message: Any) -> None:
        raise AssertionError(message)


async def test_others_have_their_turn_while_a_thousand_events_of_one_piece_are_taken() -> None:
    told = b'data: {"jsonrpc":"2.0","method":"x"}\n\n' * 1000
    answer = b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'

    class Response:
        status = 200
        headers: dict[str, str] = {"content-type": "text/event-stream"}  # noqa: RUF012

        async def chunks(self) -> AsyncIterator[bytes]:
            yield told + answer

        async def close(self) -> None:
            pass

    class Http:
        async def send(self, *_: object) -> Response:
            return Response()

    link = StreamableLink(cast("Any", Http()), message_limit=1_000_000, stream_limit=1_000_000)
    turns = _Turns()
    await soon(link.request(Outgoing(1, "tools/call", b"{}"), _Deaf()))
    assert turns.end() >= 1000 // 100


async def test_others_have_their_turn_while_a_thousand_lines_of_a_process_are_taken() -> None:
    stdout = asyncio.StreamReader(limit=1_000_000)
    stdout.feed_data(b'{"jsonrpc":"2.0","method":"x"}\n' * 1000)
    stdout.feed_eof()

    async def wait() -> int:
        return 0

    turns = _Turns()
    link = ProcessLink(cast("Any", SimpleNamespace(stdout=stdout, wait=wait, returncode=0)), 1_000_000)
    await soon(link._reading)  # pyright: ignore[reportPrivateUsage]
    assert turns.end() >= 1000 // 100


async def test_a_server_that_pings_and_does_not_read_is_owed_few_answers() -> None:
    async def never(_: bytes) -> None:
        await asyncio.Event().wait()

    link = ChannelLink(never)
    for number in range(1000):
        link.received(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % number)
    await asyncio.sleep(0)
    assert len(link._answering) == 100  # pyright: ignore[reportPrivateUsage]
    await link.close()
