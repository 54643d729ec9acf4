"""HTTP over httpx2: for authentication, proxies, redirects, and whatever else a caller's client can do.

A client that the caller brings follows what the caller wants. One that is made here takes a message to
no other server than the one it was meant for; only what authentication looks up may be moved. Where it is
looked up, the server says, which must not make us ask machines of this network: only https leads elsewhere.
"""

import functools
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ekiden.errors import TooMuch, TransportError
from ekiden.transports.client.arriving import Arriving, Part
from ekiden.transports.client.http import not_followed, split_url
from ekiden.transports.client.http_connection import IDLE_SECONDS

if TYPE_CHECKING:
    import httpx2

__all__ = ["HttpxClient"]

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_LOOKED_UP: Final = 1024 * 1024
"""The size of what authentication looks up. Metadata and tokens have a few KB, and are read whole."""
_MESSAGE: Final = "ekiden.message"
"""Marks the requests that carry messages, also when they are sent again or elsewhere."""


class _Response:
    """Implements `ekiden.transports.client.http_port.Response`."""

    def __init__(self, response: "httpx2.Response", limit: int, part: Part) -> None:
        self._response = response
        self._limit = limit
        self._part = part
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}

    async def read(self) -> bytes:
        body = bytearray()  # Not a list of chunks: one of two bytes takes as much as fifty.
        try:
            async for chunk in self.chunks():
                body += chunk
                if len(body) > self._limit:
                    raise TooMuch(f"The server sent a message of more than {self._limit} bytes")
                self._part.has(len(body))
            return bytes(body)
        finally:
            body.clear()
            self._part.end()
            await self.close()

    async def chunks(self) -> AsyncIterator[bytes]:
        import httpx2

        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except httpx2.RequestError as error:
            raise TransportError(f"The connection failed: {str(error) or type(error).__name__}") from error

    async def close(self) -> None:
        await self._response.aclose()


class HttpxClient:
    """Implements `ekiden.transports.client.http_port.HttpPort`."""

    def __init__(
        self,
        url: str,
        *,
        limit: int,
        auth: Any = None,
        client: "httpx2.AsyncClient | None" = None,
        arriving: Arriving | None = None,
    ) -> None:
        import httpx2

        self._url = url
        self._endpoint = httpx2.URL(split_url(url).geturl())
        self._limit = limit
        self._arriving = arriving or Arriving()
        self._auth: Any = auth if auth is not None else httpx2.USE_CLIENT_DEFAULT
        self._owned = client is None
        # A stream may be silent for long: reading has no timeout of its own, the caller's counts.
        timeout = httpx2.Timeout(30.0, read=None)
        hooks: dict[str, list[Any]] = {
            "request": [self._check_request],
            "response": [self._check_redirect, self._bound],
        }
        limits = httpx2.Limits(
            max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_SECONDS
        )
        self._client = client or httpx2.AsyncClient(
            timeout=timeout, limits=limits, follow_redirects=True, event_hooks=hooks
        )

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> _Response:
        """Send a request; authentication may send others before and after it."""
        import httpx2

        request = self._client.build_request(
            method, self._url, headers=dict(headers), content=body, extensions={_MESSAGE: True}
        )
        try:
            response = await self._client.send(request, stream=True, auth=self._auth)
        except httpx2.RequestError as error:  # Too many redirects, too, and a body that cannot be unpacked.
            raise TransportError(f"The connection failed: {str(error) or type(error).__name__}") from error
        return _Response(response, self._limit, self._arriving.part())

    async def _check_request(self, request: "httpx2.Request") -> None:
        """Refuse to look something up at another server without https, unless all are on this machine."""
        url, own = request.url, self._endpoint
        is_here = url.host in _LOOPBACK and own.host in _LOOPBACK
        if _origin(url) != _origin(own) and url.scheme != "https" and not is_here:
            raise TransportError(
                f"The server leads to {str(url)[:200]!r}, which is not asked: others are asked by https only"
            )

    async def _check_redirect(self, response: "httpx2.Response") -> None:
        """Refuse a redirect that leads to another server."""
        import httpx2

        if not response.has_redirect_location:
            return
        request, place = response.request, response.headers["location"]
        try:
            to = request.url.join(place)
        except httpx2.InvalidURL:
            raise not_followed(place, response.status_code) from None
        is_message = request.method != "GET" or request.url == self._endpoint
        if _origin(to) == _origin(request.url):
            allowed = not is_message or response.status_code in (307, 308)
        else:
            allowed = not is_message and to.scheme == "https"
        if not allowed:
            raise not_followed(str(to), response.status_code)

    async def _bound(self, response: "httpx2.Response") -> None:
        """Limit what authentication reads: what it looks up, and the words of a refusal."""
        import httpx2

        is_message = _MESSAGE in response.request.extensions and response.status_code < 400
        if not is_message and isinstance(response.stream, httpx2.AsyncByteStream):
            # Unpacked here: whoever reads it would unpack all of it, however much that is.
            packing = response.headers.pop("content-encoding", "")
            response.stream = _bounded()(response.stream, packing)

    async def close(self) -> None:
        """Close the connections that are ours."""
        if self._owned:
            await self._client.aclose()


@functools.cache
def _bounded() -> "Callable[[httpx2.AsyncByteStream, str], httpx2.AsyncByteStream]":
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        """A body that may have so many bytes, as they are sent and when they are unpacked."""

        def __init__(self, stream: httpx2.AsyncByteStream, packing: str) -> None:
            self._stream = stream
            self._packing = packing

        async def __aiter__(self) -> AsyncIterator[bytes]:
            chunks = _counted(self._stream)
            if self._packing:
                packed = httpx2.Response(200, headers={"content-encoding": self._packing}, content=chunks)
                chunks = _counted(packed.aiter_bytes())
            async for chunk in chunks:
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    return Bounded


async def _counted(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > _MOST_LOOKED_UP:
            raise TooMuch(f"The server sent more than {_MOST_LOOKED_UP} bytes to authentication")
        yield chunk


def _origin(url: "httpx2.URL") -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
