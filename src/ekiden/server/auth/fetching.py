"""JSON documents of an authorization server, over HTTP: bounded in time and size, and without redirects."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ekiden.errors import ProtocolError, UsageError
from ekiden.signals import VerifierUnavailable
from ekiden.wire.json import JsonObject, decode, is_object

if TYPE_CHECKING:
    import httpx2

__all__ = ["Fetcher", "check_url"]

_SECONDS: Final = 10.0
"""How long an authorization server may take. The request that needs it waits meanwhile."""
_MOST_BYTES: Final = 512 * 1024
"""The size of a document. Key sets have a few KB."""
_MOST_KEPT: Final = 20
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def check_url(url: str, what: str) -> str:
    """Refuse a URL that is not https, or http on this machine."""
    parts = urlsplit(url)
    local = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if (parts.scheme != "https" and not local) or not parts.hostname or parts.fragment:
        raise UsageError(f"{what} must be an https URL (http only on localhost), not {url!r}")
    return url


class Fetcher:
    """Fetches documents. With `keeps`, connections are kept for the next one."""

    def __init__(self, *, keeps: bool = False) -> None:
        self._keeps = keeps
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self, url: str) -> JsonObject:
        """The JSON object at a URL; `VerifierUnavailable` if there is none to be had now."""
        return await self._request("GET", url, None, None)

    async def post(self, url: str, form: Mapping[str, str], auth: tuple[str, str] | None) -> JsonObject:
        """The JSON object that a form is answered with."""
        return await self._request("POST", url, form, auth)

    async def _request(
        self, method: str, url: str, form: Mapping[str, str] | None, auth: tuple[str, str] | None
    ) -> JsonObject:
        import httpx2

        credentials: Any = auth
        try:
            async with (
                asyncio.timeout(_SECONDS),
                self._open().stream(
                    method, url, data=form, auth=credentials, headers={"accept": "application/json"}
                ) as response,
            ):
                if response.status_code != 200:
                    raise VerifierUnavailable(f"{url} answered with HTTP status {response.status_code}")
                body = b""
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        raise VerifierUnavailable(f"{url} answered with more than {_MOST_BYTES} bytes")
            document: object = decode(body)
        except (httpx2.HTTPError, TimeoutError, OSError, ProtocolError) as error:
            raise VerifierUnavailable(f"{url} could not be read: {error or type(error).__name__}") from error
        if not is_object(document):
            raise VerifierUnavailable(f"{url} is not a JSON object")
        return document

    def _open(self) -> "httpx2.AsyncClient":
        import httpx2

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            limits = httpx2.Limits(max_keepalive_connections=_MOST_KEPT if self._keeps else 0)
            self._client, self._loop = httpx2.AsyncClient(timeout=_SECONDS, limits=limits), loop
        return self._client

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()
