"""What a worker passes on of another worker's answer."""

import asyncio
from pathlib import Path

from ekiden.transports.relay import UnixRelay
from ekiden.transports.reply import Event, Incoming
from tests.serving import soon


async def test_a_long_answer_is_framed_by_the_connection_that_carries_it(tmp_path: Path) -> None:
    body = b"[" + b"1," * 100_000 + b"1]"

    async def owner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
        writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    said: list[Event] = []

    async def send(event: Event) -> None:
        said.append(event)

    async def receive() -> Event:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async with await asyncio.start_unix_server(owner, str(tmp_path / "0123abcd")):
        incoming = Incoming("POST", "/mcp", [], {}, None, b"")
        relay = UnixRelay(str(tmp_path), "ffffffff")
        assert await soon(relay.forward("0123abcd", incoming, receive, send))
    start, *pieces = said
    # It comes in pieces: with a length and in chunks at once it could be read in two ways.
    assert len(pieces) > 2
    assert start["headers"] == [(b"content-type", b"application/json")]
    assert b"".join(piece["body"] for piece in pieces) == body
