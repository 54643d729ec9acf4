"""One connection of an HTTP/1.1 client: a request is one piece of bytes, its answer is parsed by httptools.

Bounds what a server may send around a body, and how much of a stream waits for its reader. Knows no URL.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol, cast

import httptools

from ekiden.errors import TooMuch, TransportError
from ekiden.transports.client.arriving import Part

__all__ = ["IDLE_SECONDS", "HttpConnection", "HttpExchange", "Pool"]

_PAUSE_AT: Final = 256 * 1024
"""Bytes of a stream that may wait for their reader; then the socket is left to fill."""
_MOST_AROUND: Final = 128 * 1024
"""Bytes of a head, of trailers, of chunk extensions: more than any proxy adds, too little to hurt."""
IDLE_SECONDS: Final = 4.0
"""How long an idle connection is used again if the server does not say how long it keeps one. Many servers
close theirs after five seconds, and a request that crosses the closing on its way is lost."""
_MOST_IDLE_SECONDS: Final = 60.0
_KEPT: Final = re.compile(r"timeout\s*=\s*(\d{1,5})", re.ASCII)


class Pool(Protocol):
    """What a connection needs of the client that keeps it."""

    def give_back(self, connection: "HttpConnection") -> None:
        """Keep a connection for the next request."""
        ...

    def forget(self, connection: "HttpConnection") -> None:
        """A connection is gone."""
        ...


class HttpExchange:
    """One request and its response on a connection. Implements `http_port.Response`."""

    def __init__(self, connection: "HttpConnection", limit: int, part: Part | None = None) -> None:
        self._connection = connection
        self._limit = limit
        self._part = part
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._body: bytes | bytearray = b""
        """What of it waits for its reader. Not a list of pieces: one of two bytes takes as much as fifty."""
        self._size = 0
        self._streams = False
        self.complete = False
        self.error: TransportError | None = None
        self._arrived: asyncio.Event | None = None

    # Called by the connection as it parses.

    def on_head(self, status: int) -> None:
        """The head is complete."""
        self.status = status
        self._streams = self.headers.get("content-type", "").startswith("text/event-stream")
        if self._streams:
            self._settle()

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._size += len(data)
        if not self._streams and (problem := self._too_much()) is not None:
            self.on_error(problem)
            self._connection.abort()
            return
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytearray):
            self._body += data
        else:
            self._body = bytearray(self._body + data)
        if len(self._body) > _PAUSE_AT and self._streams:
            self._connection.pause()
        if self._arrived is not None:
            self._arrived.set()

    def _too_much(self) -> TooMuch | None:
        """Why no more of the message can be taken."""
        if self._size > self._limit:
            return TooMuch(f"The server sent a message of more than {self._limit} bytes")
        try:
            if self._part is not None:
                self._part.has(self._size)
        except TooMuch as problem:
            return problem
        return None

    def on_complete(self) -> None:
        """The response is whole."""
        self.complete = True
        self._settle()

    def on_error(self, error: TransportError) -> None:
        """There will be no more of it."""
        if not self.complete:
            self.error = error
            self._settle()

    @property
    def ends_with_connection(self) -> bool:
        """Whether the head names no other end of the body."""
        return (
            self.status != 0
            and "content-length" not in self.headers
            and "transfer-encoding" not in self.headers
        )

    def _settle(self) -> None:
        if not self.head.done():
            self.head.set_result(None)
        if self._arrived is not None:
            self._arrived.set()

    # Called by the reader.

    async def read(self) -> bytes:
        """The whole body. Unless it is a stream, it is complete by the time its head is handed out."""
        if self.complete:
            body = self._taken()
            await self.close()
            return body
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        self._arrived = asyncio.Event()
        while True:
            while self._body:
                yield self._taken()
            if self.error is not None:
                raise self.error
            if self.complete:
                await self.close()
                return
            self._connection.resume()
            self._arrived.clear()
            await self._arrived.wait()

    def _taken(self) -> bytes:
        body, self._body = bytes(self._body), b""
        return body

    async def close(self) -> None:
        """Give the connection back, or close it if the body has not been read to its end."""
        self.give_up()

    def give_up(self) -> None:
        """The same. What has come and was not read is not kept: whoever has failed may be known for long."""
        self._body = b""
        if self._part is not None:
            self._part.end()
        self._connection.release(self)


class HttpConnection(asyncio.Protocol):
    """One socket. At most one exchange at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._parser: Any = None
        self._exchange: HttpExchange | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._keep_alive = False
        self._provisional = False
        """Whether the head that was read last is of a 1xx response, after which the real one comes."""
        self._around = 0
        """Bytes since the last ones of a body: heads, trailers and chunk sizes."""
        self.usable_until = 0.0
        """Until when an idle connection may be used again, by the loop's clock."""
        self.closed = False

    def exchange(self, request: bytes, limit: int, part: Part) -> HttpExchange:
        """Send a request. `part` counts what has come of its response."""
        assert self._transport is not None
        exchange = self._exchange = HttpExchange(self, limit, part)
        self._parser = httptools.HttpResponseParser(self)
        self._around = 0
        self._transport.write(request)
        return exchange

    def release(self, exchange: HttpExchange) -> None:
        """An exchange is over: go back to the pool, or close if its body was not read to its end."""
        if self._exchange is not exchange:
            return
        self._exchange = None
        keep = exchange.complete and exchange.error is None and self._keep_alive
        if keep and not self.closed:
            self.resume()
            kept = _seconds_kept(exchange.headers.get("keep-alive", ""))
            self.usable_until = asyncio.get_running_loop().time() + kept
            self._pool.give_back(self)
        else:
            self.abort()

    def pause(self) -> None:
        """Stop reading until what has come is taken."""
        if not self._paused and self._transport is not None and not self.closed:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and self._transport is not None and not self.closed:
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once: what the peer still sends is not wanted."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server is here."""
        self._transport = cast("asyncio.Transport", transport)  # Those of uvloop are not subclasses of it.

    def data_received(self, data: bytes) -> None:
        """Take what came in."""
        exchange = self._exchange
        if exchange is None or exchange.complete:
            self.abort()  # The server speaks out of turn: nothing on this connection can be trusted.
            return
        self._around += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            exchange.on_error(TransportError(f"The server's response is not HTTP: {error}"))
            self.abort()
            return
        if self._around > _MOST_AROUND and not exchange.complete:
            exchange.on_error(TooMuch(f"The server sent headers of more than {_MOST_AROUND} bytes"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The server is gone."""
        self.closed = True
        self._pool.forget(self)
        # The parser knows us: without this, what has come stays in memory until cycles are looked for.
        exchange, self._exchange, self._parser = self._exchange, None, None
        if exchange is None:
            return
        if exc is None and exchange.ends_with_connection:
            exchange.on_complete()
        else:
            exchange.on_error(TransportError("The connection was closed before the response was complete"))

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        exchange = self._exchange
        if exchange is not None and not exchange.complete:
            exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        """The head is whole; that of a provisional response says nothing."""
        exchange = self._exchange
        if exchange is None or exchange.complete:
            return
        status = self._parser.get_status_code()
        self._provisional = 100 <= status < 200
        if self._provisional:
            exchange.headers.clear()
        else:
            exchange.on_head(status)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._around = 0
        if self._exchange is not None and not self._exchange.complete:
            self._exchange.on_body(data)

    def on_message_complete(self) -> None:
        """The response is whole."""
        exchange = self._exchange
        if exchange is None or self._provisional:
            return
        # Only now does the parser know; once it has returned it has forgotten.
        self._keep_alive = self._parser.should_keep_alive() and not exchange.complete
        exchange.on_complete()


def _seconds_kept(keep_alive: str) -> float:
    """For how long to use an idle connection: as the header `Keep-Alive` says, less a second of caution."""
    named = _KEPT.search(keep_alive)
    return min(float(named[1]) - 1.0, _MOST_IDLE_SECONDS) if named else IDLE_SECONDS
