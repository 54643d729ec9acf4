"""Whatever bytes come on a connection, it answers in order and in form, however they are cut."""

import asyncio
import logging
from typing import Any

import h11
import httptools
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from ekiden import Context, Server
from ekiden.transports.server.http1.connection import Connection
from ekiden.transports.server.http1.connections import Connections
from tests.fuzz.streams import pieces, stream

_EXPECTED = {200, 202, 400, 403, 404, 405, 408, 413, 414, 415, 421, 431, 501, 505}


class _Wire(asyncio.Transport):
    """A transport that remembers what was written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.said = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed, "written to a closed connection"
        self.said += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class _Responses:
    """Reads responses; what is not HTTP is an error."""

    def __init__(self, said: bytes) -> None:
        self.statuses: list[int] = []
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(said)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 100:  # It is sent only if the body is not here yet.
            self.statuses.append(status)


def _server() -> Server:
    server = Server("fuzzed", version="1")

    @server.tool
    async def greet(name: str) -> str:
        """Greet someone."""
        return f"Hello, {name[:10]}!"

    @server.tool
    async def slowly(name: str, ctx: Context) -> str:
        """Take a moment."""
        await asyncio.sleep(0)
        return "there"

    return server


async def _answers(application: Any, parts: list[bytes]) -> tuple[list[int], list[bytes]]:
    """The statuses of all responses, and the bodies of the requests that were answered."""
    bodies: list[bytes] = []

    class Watched(Connection):
        def _begin(self, exchange: Any) -> None:
            bodies.append(exchange.incoming.body)
            super()._begin(exchange)

    config = Config(application)
    config.load()
    wire = _Wire()
    connection = Connections(application, Watched)(config, ServerState(), {})
    connection.connection_made(wire)
    try:
        for part in parts:
            if not wire.is_closed:
                connection.data_received(part)
                await asyncio.sleep(0)
        async with asyncio.timeout(20):
            while (connection._exchange is not None or connection._waiting) and not wire.is_closed:
                if connection._exchange is not None and connection._exchange.is_streaming:
                    break  # A subscription: it has no end.
                await asyncio.sleep(0)
    finally:
        wire.is_closed = True
        connection.connection_lost(None)
    await asyncio.sleep(0)
    # A stream that has not ended is cut; the parser does not mind.
    return _Responses(wire.said).statuses, bodies


def _as_h11_reads(data: bytes) -> list[bytes] | None:
    """The bodies of all requests, or None where it finds something wrong, or an upgrade."""
    reader = h11.Connection(h11.SERVER)
    bodies: list[bytes] = []
    body = b""
    try:
        reader.receive_data(data)
        while True:
            event = reader.next_event()
            if isinstance(event, h11.Request):
                if any(name in (b"upgrade", b"expect") for name, _ in event.headers):
                    return None
                body = b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                bodies.append(body)
                reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                reader.send(h11.EndOfMessage())
                if reader.our_state is not h11.DONE:
                    return bodies
                reader.start_next_cycle()
            elif event in (h11.NEED_DATA, h11.PAUSED):
                return bodies
            else:
                return bodies
    except (h11.RemoteProtocolError, h11.LocalProtocolError):
        return None


async def _check(application: Any, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    data = stream(seed)
    statuses, bodies = await _answers(application, [data])
    assert set(statuses) <= _EXPECTED, f"seed {seed}: {statuses}"
    again, _ = await _answers(application, pieces(data, seed))
    assert statuses == again, f"seed {seed}: it depends on how the bytes are cut"
    theirs = _as_h11_reads(data)
    if theirs is not None:
        # Who was answered must have said the same to a proxy that reads as h11 does.
        assert bodies[: len(theirs)] == theirs[: len(bodies)], f"seed {seed}: two parsers, two requests"
    wrong = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not wrong, f"seed {seed}: {wrong[0].getMessage()}"


async def test_generated_streams_are_answered_in_form(fuzz: range, caplog: pytest.LogCaptureFixture) -> None:
    server = _server()
    application = server.asgi()
    async with server.running():
        for seed in fuzz:
            await _check(application, seed, caplog)
