"""Connections of the client that are used again, and those that are not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ekiden.transports.client.http import HttpClient


class Served:
    """A server that answers every request, and notes on which of its connections it came."""

    def __init__(self, header: str) -> None:
        self._header = header
        self.port = 0
        self.came_on: list[int] = []
        self._connections = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.came_on.append(number)
                writer.write(f"HTTP/1.1 200 OK\r\n{self._header}content-length: 2\r\n\r\n{{}}".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The client has left.
        finally:
            writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield


async def came_on(header: str, pause: float, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Send two requests with a pause between them. The loop's clock is set forward instead of waiting."""
    served, loop = Served(header), asyncio.get_running_loop()
    async with served.listening():
        client = HttpClient(f"http://127.0.0.1:{served.port}/mcp", limit=1000)
        assert await (await client.send("GET", {}, b"")).read() == b"{}"
        time = loop.time
        with monkeypatch.context() as later:
            later.setattr(loop, "time", lambda: time() + pause)
            assert await (await client.send("GET", {}, b"")).read() == b"{}"
        await client.close()
    return served.came_on


@pytest.mark.parametrize(
    ("header", "pause", "expected"),
    [
        ("", 0.0, [1, 1]),
        ("", 3.0, [1, 1]),
        ("", 4.5, [1, 2]),
        ("Keep-Alive: timeout=5\r\n", 3.0, [1, 1]),
        ("Keep-Alive: timeout=5, max=100\r\n", 4.5, [1, 2]),
        ("Keep-Alive: max=7, timeout=30\r\n", 20.0, [1, 1]),
        ("Keep-Alive: timeout=1\r\n", 0.5, [1, 2]),
        ("Keep-Alive: timeout=0\r\n", 0.0, [1, 2]),
        ("Keep-Alive: timeout=99999\r\n", 50.0, [1, 1]),
        ("Keep-Alive: timeout=99999\r\n", 70.0, [1, 2]),
        ("Keep-Alive: timeout=soon\r\n", 4.5, [1, 2]),
    ],
)
async def test_an_idle_connection_is_not_used_again_when_the_server_may_be_closing_it(
    header: str, pause: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await came_on(header, pause, monkeypatch) == expected
