"""Clients that are slow, silent or gone, on purpose or not, cost the others nothing."""

import asyncio
import contextlib
import gc
import json
import logging

import psutil
import pytest

from ekiden import Context, HttpLimits, Server
from tests.serving import PATIENCE, call, headers_for, post, raw_client, served, soon, spawned


def echo_server() -> Server:
    server = Server("s")

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


async def assert_served(base: str) -> None:
    """An honest client is answered before the others are cut."""
    async with asyncio.timeout(20):
        responses = await asyncio.gather(*(post(base, call("echo", {"text": str(n)})) for n in range(5)))
    assert [response.json()["result"]["content"][0]["text"] for response in responses] == list("01234")


async def test_half_open_clients_do_not_keep_others_from_being_served() -> None:
    head = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    beginnings = [
        b"",
        b"P",
        b"POST /mcp HTTP/1.1\r\n",
        head + b"x-header: ",
        head + b"content-length: 100\r\n\r\n",
        head + b"transfer-encoding: chunked\r\n\r\n5\r\n{",
    ]
    async with served(echo_server()) as base, contextlib.AsyncExitStack() as stack:
        for beginning in beginnings * 20:
            client = await stack.enter_async_context(raw_client(base))
            client.writer.write(beginning)
            await client.writer.drain()
        await assert_served(base)


async def test_clients_that_dribble_their_bodies_do_not_keep_others_from_being_served() -> None:
    message = call("echo", {"text": "patience"})
    body = json.dumps(message).encode()

    async with served(echo_server()) as base, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw_client(base)) for _ in range(30)]
        for client in clients:
            await client.send_head(headers_for(message) | {"content-length": str(len(body))})
        for position in range(len(body) - 1):
            for client in clients:
                client.writer.write(body[position : position + 1])
            if position % 50 == 0:
                await assert_served(base)
            await asyncio.sleep(0)
        for client in clients:
            client.writer.write(body[-1:])
        for client in clients:
            assert b"patience" in await client.read_until(b"patience")


async def test_a_client_that_dribbles_for_too_long_is_cut() -> None:
    async with served(echo_server(), limits=HttpLimits(body_seconds=0.3)) as base, raw_client(base) as client:
        await client.send_head({"content-type": "application/json", "content-length": "1000000"})

        async def dribble() -> None:
            with contextlib.suppress(ConnectionError):
                while not client.writer.is_closing():
                    client.writer.write(b" ")
                    await client.writer.drain()
                    await asyncio.sleep(0.01)

        dribbling = asyncio.create_task(dribble())
        assert b" 408 " in await client.read_until(b"\r\n")
        dribbling.cancel()
        await assert_served(base)


class Flood:
    """A server with a tool that reports progress for ever."""

    def __init__(self) -> None:
        self.server = echo_server()
        self.sent = 0
        self.ended = asyncio.Event()
        self.server.tool(self.flood)

    async def flood(self, ctx: Context) -> str:
        try:
            while True:
                self.sent += 1
                await ctx.progress(self.sent, message="x" * 10_000)
                await asyncio.sleep(0)
        finally:
            self.ended.set()


MOST_BUFFERED = 12 * 1024 * 1024
"""What may lie in the kernel's and uvicorn's buffers for one client. Linux lets a send buffer and
a receive buffer grow to 4 and 6 MiB; uvicorn stops above 64 KiB of its own."""


@pytest.mark.parametrize("reads_first", [0, 100_000])
async def test_a_client_that_stops_reading_is_cut_and_its_handler_cancelled(
    reads_first: int, caplog: pytest.LogCaptureFixture
) -> None:
    flood = Flood()
    process = psutil.Process()
    limits = HttpLimits(stall_seconds=0.3)
    async with served(flood.server, limits=limits, quiet=False) as base:
        await assert_served(base)
        gc.collect()
        before = process.memory_info().rss
        async with raw_client(base, receive_buffer=16_384) as client:
            await client.send(call("flood", progressToken=1))
            if reads_first:
                await soon(client.reader.readexactly(reads_first))
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            await soon(flood.ended.wait())
            grown = process.memory_info().rss - before
            await assert_served(base)
            client.reader._transport.resume_reading()  # type: ignore[attr-defined]
            rest = await client.read_to_end()
        assert flood.sent * 10_000 < MOST_BUFFERED
        assert grown < 40 * 1024 * 1024
        assert not rest.endswith(b"0\r\n\r\n"), "the stream must not look as if it were complete"
    assert "Exception in ASGI application" not in caplog.text
    assert not [
        record for record in caplog.records if record.name == "asyncio" and record.levelno >= logging.ERROR
    ]


async def test_many_clients_that_stop_reading_take_bounded_memory() -> None:
    flood = Flood()
    process = psutil.Process()
    async with served(flood.server, limits=HttpLimits(stall_seconds=30), quiet=False, grace=1) as base:
        await assert_served(base)
        gc.collect()
        before = process.memory_info().rss
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(raw_client(base, receive_buffer=16_384)) for _ in range(20)
            ]
            for client in clients:
                await client.send(call("flood", progressToken=1))
                await client.read_until(b"notifications/progress")
                client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            last = -1
            async with asyncio.timeout(PATIENCE):
                while flood.sent != last:  # Until all of them are blocked.
                    last = flood.sent
                    await asyncio.sleep(0.1)
            grown = process.memory_info().rss - before
            await assert_served(base)
    assert grown < 20 * 1024 * 1024


RESTLESS = """
import sys
from ekiden import Context, Server

server = Server("s")

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
async def restless(ctx: Context) -> str:
    n = 0
    while True:
        n += 1
        await ctx.progress(n)

server.run("http", port=int(sys.argv[1]), grace=1, log_level="warning")
"""


async def test_a_handler_that_reports_without_a_pause_ends_when_its_client_leaves() -> None:
    # In a process of its own: a loop that never comes round cannot be timed out from within.
    async with spawned(RESTLESS) as server:
        async with raw_client(server.base) as client:
            await client.send(call("restless", progressToken=1))
            await client.read_until(b"notifications/progress")
        await assert_served(server.base)
