"""The port between the client's Streamable HTTP and whatever speaks HTTP for it."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

__all__ = ["HttpPort", "Response", "content_type"]


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


def content_type(response: Response) -> str:
    """The type of a response's body, without parameters, in lower case."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()
