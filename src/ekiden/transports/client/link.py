"""The port between a client and its transports.

A link carries requests to a server and brings back, for each, the messages that belong to it and
its response. How they are told apart (one HTTP response each, or ids on a shared channel) is the
link's business.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from ekiden.transports.client.decoding import Held
from ekiden.wire.jsonrpc import RequestId

__all__ = ["Link", "Listener", "Outgoing"]


class Outgoing(msgspec.Struct):
    """A request on its way."""

    id: RequestId
    method: str
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """The HTTP headers that mirror it; other transports have no use for them."""
    held: Held | None = None
    """Counts the response, if its receiver passes it on."""


class Listener(Protocol):
    """Who hears what a server says besides its response."""

    def on_notification(self, message: dict[str, Any]) -> None:
        """A notification arrived."""
        ...

    async def on_request(self, message: dict[str, Any]) -> None:
        """The server asks something itself, as servers did before 2026."""
        ...


class Link(Protocol):
    """A way to one server."""

    async def request(self, outgoing: Outgoing, listener: Listener) -> dict[str, Any]:
        """Send a request and wait for its response. Cancelling this cancels the request at the server."""
        ...

    async def send(self, message: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification, or before 2026 a response. `headers` are for HTTP."""
        ...

    async def close(self, *, hurry: bool = False) -> None:
        """End the link. With `hurry` somebody's time is up already: a server gets less time to end."""
        ...
