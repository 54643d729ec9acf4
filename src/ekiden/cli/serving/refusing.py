"""Answers every HTTP request with 503 and a reason, while there is no worker that could serve it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Final

from ekiden.errors import InternalError
from ekiden.wire.jsonrpc import error_response

__all__ = ["refusing"]

_READ_SECONDS: Final = 5.0
"""How long a request may take to arrive; then its connection is closed."""
_HEADERS: Final = (
    b"content-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: %d\r\n"
)
_MOST_BYTES: Final = 4 * 1024 * 1024
"""Of a request that are read and thrown away: as many as a server takes."""


@contextlib.asynccontextmanager
async def refusing(listeners: list[socket.socket], reason: str) -> AsyncGenerator[None, None]:
    """Accept connections while the block runs. After it they wait in the listeners for the next worker."""
    body = error_response(None, InternalError(reason))
    response = b"HTTP/1.1 503 Service Unavailable\r\n%b\r\n%b" % (_HEADERS % len(body), body)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(_READ_SECONDS):
                await _read(reader)  # To close before it is read could destroy the response on its way.
                writer.write(response)
                await writer.drain()
        writer.close()

    async with contextlib.AsyncExitStack() as stack:
        for listener in listeners:
            # A copy: closing the server closes its socket, and the listener is needed by the next worker.
            server = await asyncio.start_server(refuse, sock=listener.dup(), backlog=2048)
            stack.callback(server.close)
        yield


async def _read(reader: asyncio.StreamReader) -> None:
    """Read one request, as long as it says it is."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, _, rest = head.partition(b"\r\ncontent-length:")
    length = rest.partition(b"\r\n")[0].strip()
    await reader.readexactly(min(int(length) if length.isdigit() else 0, _MOST_BYTES))
