"""HTTP/1.1, client side: keep-alive connections that know just enough for MCP.

A general HTTP client spends more time on a small request than the server spends on answering it. This
one writes a request as one piece of bytes and has the answer parsed by httptools. What it leaves
out (proxies, redirects to other servers, cookies, compression, authentication) is the business of
`ekiden.transports.httpx`, which offers the same port on top of httpx2.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, urljoin, urlsplit

import httptools

from ekiden.errors import TooMuch, TransportError, UsageError

__all__ = ["Exchange", "HttpClient", "HttpPort", "Response"]

_PAUSE_AT: Final = 256 * 1024
"""Bytes of a stream that may wait for their reader; then the socket is left to fill."""
_MOST_IDLE: Final = 32
"""Connections that are kept for reuse; each is a socket at the server too."""
_MOST_AROUND: Final = 128 * 1024
"""Bytes of a head, of trailers, of chunk extensions: more than any proxy adds, too little to hurt."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SAME_REQUEST: Final = frozenset({307, 308})
"""Redirects that are followed: the others turn a POST into a GET, which is no message."""
_MOST_REDIRECTS: Final = 5
_MOST_HEADS: Final = 256
"""Heads that are remembered."""


class Response(Protocol):
    """A response whose head has arrived."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, names in lower case."""
        ...

    async def read(self) -> bytes:
        """The whole body."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        ...

    async def close(self) -> None:
        """Done with it: a connection whose body was not read to its end is closed."""
        ...


class HttpPort(Protocol):
    """What the client needs of HTTP."""

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Send a request to the endpoint; returns when the head of the response has arrived."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Exchange:
    """One request and its response on a connection. Implements `Response`."""

    def __init__(self, connection: "_Connection", limit: int) -> None:
        self._connection = connection
        self._limit = limit
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._body: deque[bytes] = deque()
        self._waiting = 0
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
        if not self._streams and self._size > self._limit:
            self.on_error(TooMuch(f"The server sent a message of more than {self._limit} bytes"))
            self._connection.abort()
            return
        self._body.append(data)
        self._waiting += len(data)
        if self._waiting > _PAUSE_AT and self._streams:
            self._connection.pause()
        if self._arrived is not None:
            self._arrived.set()

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
        """The whole body. One that is no stream is complete by the time its head is handed out."""
        if self.complete:
            body = b"".join(self._body)
            await self.close()
            return body
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        self._arrived = asyncio.Event()
        while True:
            while self._body:
                chunk = self._body.popleft()
                self._waiting -= len(chunk)
                yield chunk
            if self.error is not None:
                raise self.error
            if self.complete:
                await self.close()
                return
            self._connection.resume()
            self._arrived.clear()
            await self._arrived.wait()

    async def close(self) -> None:
        """Give the connection back, or close it if the body has not been read to its end."""
        self._connection.release(self)


class _Connection(asyncio.Protocol):
    """One socket. At most one exchange at a time."""

    def __init__(self, pool: "HttpClient") -> None:
        self._pool = pool
        self._parser: Any = None
        self._exchange: Exchange | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._keep_alive = False
        self._provisional = False
        """Whether the head that was read last is of a 1xx response, after which the real one comes."""
        self._around = 0
        """Bytes since the last ones of a body: heads, trailers and chunk sizes."""
        self.closed = False

    def exchange(self, request: bytes, limit: int) -> Exchange:
        """Send a request."""
        assert self._transport is not None
        exchange = self._exchange = Exchange(self, limit)
        self._parser = httptools.HttpResponseParser(self)
        self._around = 0
        self._transport.write(request)
        return exchange

    def release(self, exchange: Exchange) -> None:
        if self._exchange is not exchange:
            return
        self._exchange = None
        keep = exchange.complete and exchange.error is None and self._keep_alive
        if keep and not self.closed:
            self.resume()
            self._pool.give_back(self)
        else:
            self.abort()

    def pause(self) -> None:
        if not self._paused and self._transport is not None and not self.closed:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
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
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None or exchange.complete:
            self.abort()  # The server speaks out of turn: nothing on this connection can be trusted.
            return
        self._around += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            exchange.on_error(TransportError(f"The server's response is no HTTP: {error}"))
            self.abort()
            return
        if self._around > _MOST_AROUND and not exchange.complete:
            exchange.on_error(TooMuch(f"The server sent headers of more than {_MOST_AROUND} bytes"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._pool.forget(self)
        if self._exchange is None:
            return
        if exc is None and self._exchange.ends_with_connection:
            self._exchange.on_complete()
        else:
            self._exchange.on_error(
                TransportError("The connection was closed before the response was complete")
            )

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        exchange = self._exchange
        if exchange is not None and not exchange.complete:
            exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
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
        self._around = 0
        if self._exchange is not None and not self._exchange.complete:
            self._exchange.on_body(data)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or self._provisional:
            return
        # Only now does the parser know; once it has returned it has forgotten.
        self._keep_alive = self._parser.should_keep_alive() and not exchange.complete
        exchange.on_complete()


class HttpClient:
    """Connections to one endpoint. Implements `HttpPort`."""

    def __init__(
        self,
        url: str,
        *,
        limit: int,
        connect_seconds: float = 10.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url!r} is no http(s) URL")
        self._parts = parts
        self._limit = limit
        self._connect_seconds = connect_seconds
        self._ssl = (ssl_context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._target = _target(parts)
        self._host = _host(parts)
        self._heads: dict[tuple[object, ...], bytes] = {}
        """Heads that were sent before: those of one tool are the same in every call."""
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> Exchange:
        """Send a request; one that is no stream is complete when this returns."""
        target = self._target
        for _ in range(_MOST_REDIRECTS + 1):
            exchange = await self._send(self._spell(method, target, headers, body))
            if exchange.status not in _REDIRECTS:
                return exchange
            await exchange.close()
            target = self._redirected(target, exchange)
        raise TransportError(f"{self._host} redirects more than {_MOST_REDIRECTS} times")

    def _redirected(self, target: str, exchange: Exchange) -> str:
        """Where to send the same request instead: only to the same server, which has seen it already."""
        place = urljoin(f"{self._parts.scheme}://{self._host}{target}", exchange.headers.get("location", ""))
        parts = urlsplit(place)
        same = (parts.scheme, _host(parts)) == (self._parts.scheme, self._host)
        if exchange.status not in _SAME_REQUEST or not same:
            raise TransportError(
                f"The server redirects to {place[:200]!r} (HTTP status {exchange.status}), which is not "
                "followed: if that is where it lives, give the client that address"
            )
        return _target(parts)

    async def _send(self, request: bytes) -> Exchange:
        connection = await self._connection()
        exchange = connection.exchange(request, self._limit)
        try:
            await exchange.head
        except asyncio.CancelledError:
            connection.abort()
            raise
        if exchange.error is not None:
            connection.abort()
            raise exchange.error
        return exchange

    def _spell(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        key = (method, target, *headers.items())
        head = self._heads.get(key)
        if head is None:
            head = self._spell_head(method, target, headers)
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()
            self._heads[key] = head
        return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)

    def _spell_head(self, method: str, target: str, headers: Mapping[str, str]) -> bytes:
        lines = [f"{method} {target} HTTP/1.1\r\nhost: {self._host}\r\n"]
        for name, value in headers.items():
            if "\r" in value or "\n" in value:
                raise UsageError(f"header {name} must not contain a line break")
            lines.append(f"{name}: {value}\r\n")
        return "".join(lines).encode("latin-1")

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        loop = asyncio.get_running_loop()
        port = self._parts.port or (443 if self._ssl is not None else 80)
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self), self._parts.hostname or "", port, ssl=self._ssl
                )
        except TimeoutError:
            raise TransportError(f"Connecting to {self._host} took too long") from None
        except OSError as error:
            raise TransportError(f"Cannot connect to {self._host}: {error.strerror or error}") from error
        self._open.add(connection)
        return connection

    def give_back(self, connection: _Connection) -> None:
        """Keep a connection for the next request."""
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.abort()

    def forget(self, connection: _Connection) -> None:
        """A connection is gone."""
        self._open.discard(connection)

    async def close(self) -> None:
        """Close all connections."""
        for connection in tuple(self._open):
            connection.abort()
        self._idle.clear()


def _target(parts: SplitResult) -> str:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or any(letter <= " " or letter == "\x7f" for letter in target):
        raise UsageError(f"the address {target[:200]!r} must be spelled in ASCII, other letters with %")
    return target


def _host(parts: SplitResult) -> str:
    name = parts.hostname or ""
    host = f"[{name}]" if ":" in name else name
    return f"{host}:{parts.port}" if parts.port is not None else host
