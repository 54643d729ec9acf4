"""HTTP/1.1, client side: keep-alive connections that know just enough for MCP.

A general HTTP client spends more time on a small request than the server spends on answering it. This
one writes a request as one piece of bytes and follows redirects within the server. What it leaves
out (proxies, redirects to other servers, cookies, compression, authentication) is the business of
`ekiden.transports.client.over_httpx`, which offers the same port on top of httpx2.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from ekiden.errors import TransportError, UsageError
from ekiden.transports.client.arriving import Arriving
from ekiden.transports.client.http_connection import HttpConnection, HttpExchange

__all__ = ["HttpClient", "not_followed", "split_url"]

_MOST_IDLE: Final = 32
"""Connections that are kept for reuse; each is a socket at the server too."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SAME_REQUEST: Final = frozenset({307, 308})
"""Redirects that are followed: the others turn a POST into a GET, which carries no message."""
_MOST_REDIRECTS: Final = 5
_MOST_HEADS: Final = 256
"""Heads that are remembered."""


class HttpClient:
    """Connections to one endpoint. Implements `ekiden.transports.client.http_port.HttpPort`."""

    def __init__(
        self,
        url: str,
        *,
        limit: int,
        connect_seconds: float = 10.0,
        ssl_context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        arriving: Arriving | None = None,
    ) -> None:
        self._parts = parts = split_url(url)
        self._limit = limit
        self._arriving = arriving or Arriving()
        self._connect_seconds = connect_seconds
        self._ssl = (ssl_context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._target = _target(parts)
        self._host = _host(parts)
        self._always = dict(headers or {})
        """Headers of every request. Redirects stay within the server, so that nobody else gets them."""
        self._heads: dict[tuple[object, ...], bytes] = {}
        """Heads by what they are made of: those of one tool are the same in every call."""
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> HttpExchange:
        """Send a request. Unless the response is a stream, it is complete when this returns."""
        target = self._target
        for _ in range(_MOST_REDIRECTS + 1):
            exchange = await self._send(self._spell(method, target, headers, body))
            if exchange.status not in _REDIRECTS:
                return exchange
            await exchange.close()
            target = self._redirected(target, exchange)
        raise TransportError(f"{self._host} redirects more than {_MOST_REDIRECTS} times")

    def _redirected(self, target: str, exchange: HttpExchange) -> str:
        """Where to send the same request instead: only to the same server, which has seen it already."""
        place = exchange.headers.get("location", "")
        try:
            place = urljoin(f"{self._parts.scheme}://{self._host}{target}", place)
            parts = urlsplit(place)
            same = (parts.scheme, _host(parts)) == (self._parts.scheme, self._host)
            if same and exchange.status in _SAME_REQUEST:
                return _target(parts)
        except (ValueError, UsageError):
            pass  # It is not an address at all.
        raise not_followed(place, exchange.status)

    async def _send(self, request: bytes) -> HttpExchange:
        connection = await self._connection()
        exchange = connection.exchange(request, self._limit, self._arriving.part())
        try:
            await exchange.head
        except asyncio.CancelledError:
            exchange.give_up()
            raise
        if exchange.error is not None:
            exchange.give_up()
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
        named = {name.lower() for name in headers}
        always = {name: value for name, value in self._always.items() if name.lower() not in named}
        for name, value in {**always, **headers}.items():
            if "\r" in value or "\n" in value:
                raise UsageError(f"header {name} must not contain a line break")
            lines.append(f"{name}: {value}\r\n")
        return "".join(lines).encode("latin-1")

    async def _connection(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable_until < loop.time():
                connection.abort()  # The server may be closing it right now.
            elif not connection.closed:
                return connection
        port = self._parts.port or (443 if self._ssl is not None else 80)
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(self), self._parts.hostname or "", port, ssl=self._ssl
                )
        except TimeoutError:
            raise TransportError(f"Connecting to {self._host} took too long") from None
        except ConnectionRefusedError as error:
            raise TransportError(
                f"Cannot connect to {self._host}: nothing listens there. Is it running?"
            ) from error
        except OSError as error:
            raise TransportError(f"Cannot connect to {self._host}: {error.strerror or error}") from error
        except UnicodeError as error:
            raise TransportError(f"Cannot connect to {self._host}: that is not the name of a host") from error
        self._open.add(connection)
        return connection

    def give_back(self, connection: HttpConnection) -> None:
        """Keep a connection for the next request."""
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.abort()

    def forget(self, connection: HttpConnection) -> None:
        """A connection is gone."""
        self._open.discard(connection)

    async def close(self) -> None:
        """Close all connections."""
        for connection in tuple(self._open):
            connection.abort()
        self._idle.clear()


def not_followed(place: str, status: int) -> TransportError:
    """The error for a redirect that leads away from the server."""
    return TransportError(
        f"The server redirects to {place[:200]!r} (HTTP status {status}), which is not "
        "followed: if that is where it lives, give the client that address"
    )


def split_url(url: str) -> SplitResult:
    """The parts of an address that can be connected to."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    raise UsageError(f"{url!r} is not an http(s) URL")


def _target(parts: SplitResult) -> str:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or any(letter <= " " or letter == "\x7f" for letter in target):
        raise UsageError(f"the address {target[:200]!r} must be spelled in ASCII, other letters with %")
    return target


def _host(parts: SplitResult) -> str:
    name = parts.hostname or ""
    host = f"[{name}]" if ":" in name else name
    return f"{host}:{parts.port}" if parts.port is not None else host
