"""HTTP+SSE of 2024-11-05, client side: one stream brings all messages of the server.

The client GETs the stream. Its first message names the address to which the client POSTs its messages, which
must be one of the same server. The answers come on the stream. Some servers still offer nothing else.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import urljoin, urlsplit

from ekiden.errors import TransportError, UsageError
from ekiden.transports.client.channel import ChannelLink
from ekiden.transports.client.http_port import HttpPort, Response, content_type
from ekiden.transports.client.refusal import finish
from ekiden.wire import sse

__all__ = ["HttpSseLink"]

_OPENING_SECONDS: Final = 10.0
"""How long a server may take to open the stream and to name the address for messages."""
_HEADERS: Final = {"Content-Type": "application/json"}


class HttpSseLink(ChannelLink):
    """A link over one stream and many POSTs."""

    def __init__(
        self,
        stream: HttpPort,
        response: Response,
        events: AsyncIterator[sse.Event],
        posts: HttpPort,
        most_values: int | None = None,
    ) -> None:
        super().__init__(self._post, most_values=most_values)
        self._stream = stream
        self._opened = response
        self._posts = posts
        self._reading = asyncio.get_running_loop().create_task(self._read(events))

    @classmethod
    async def open(
        cls, url: str, http: Callable[[str], HttpPort], limit: int, most_values: int | None = None
    ) -> "HttpSseLink | None":
        """A link to a server that offers this at `url`, else None. `http` connects to an address."""
        stream = http(url)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(stream.close)
            opened = await _opened(stream, limit)
            if opened is None:
                return None
            response, events, named = opened
            stack.push_async_callback(response.close)
            link = cls(stream, response, events, _endpoint(url, named, http), most_values)
            stack.pop_all()
            return link

    async def _post(self, message: bytes) -> None:
        """Send a message. If the stream is lost meanwhile, nobody waits for what the server says to it."""
        posting = asyncio.create_task(self._send_post(message))
        try:
            await asyncio.wait({posting, self._reading}, return_when=asyncio.FIRST_COMPLETED)
            if not posting.done() and self._lost is not None:
                raise self._lost
            await posting
        finally:
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)

    async def _send_post(self, message: bytes) -> None:
        await finish(await self._posts.send("POST", _HEADERS, message))

    async def _read(self, events: AsyncIterator[sse.Event]) -> None:
        try:
            async for event in events:
                if event.name == "message" and event.data:
                    await self.hear(event.data)
            self.lost(TransportError("The server has ended its stream of messages: connect to it again"))
        except TransportError as error:
            self.lost(error)

    async def close(self, *, hurry: bool = False) -> None:
        """Close the stream and the connections; that ends the session."""
        await super().close(hurry=hurry)
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        await self._opened.close()
        await self._posts.close()
        await self._stream.close()


async def _opened(stream: HttpPort, limit: int) -> tuple[Response, AsyncIterator[sse.Event], bytes] | None:
    """The stream, its further events, and the address for messages."""
    async with AsyncExitStack() as stack:
        with contextlib.suppress(TimeoutError, TransportError):
            async with asyncio.timeout(_OPENING_SECONDS):
                response = await stream.send("GET", {"Accept": "text/event-stream"}, b"")
                stack.push_async_callback(response.close)
                if response.status == 200 and content_type(response) == "text/event-stream":
                    events = _events(response, limit)
                    if (named := await _named(events)) is not None:
                        stack.pop_all()
                        return response, events, named
    return None


async def _named(events: AsyncIterator[sse.Event]) -> bytes | None:
    """The address for messages; None if the stream begins with a message, as others do.

    Servers may say before it how long to wait before a reconnection (`retry:`), or send a ping.
    """
    async for event in events:
        if event.name == "endpoint" and event.data:
            return event.data
        if event.name == "message" and event.data:
            return None
    return None


async def _events(response: Response, limit: int) -> AsyncIterator[sse.Event]:
    decoder = sse.Decoder(limit)
    async for chunk in response.chunks():
        for event in decoder.feed(chunk):
            yield event


def _endpoint(url: str, data: bytes, http: Callable[[str], HttpPort]) -> HttpPort:
    """Where messages go: an address relative to that of the stream, and of the same server."""
    named = data.decode(errors="replace").strip()
    with contextlib.suppress(ValueError, UsageError):
        place = urljoin(url, named)
        if urlsplit(place)[:2] == urlsplit(url)[:2]:
            return http(place)
    raise TransportError(
        f"The server wants messages sent to {named[:200]!r}, which is not an address of its own"
    )
