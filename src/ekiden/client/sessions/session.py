"""What the two eras of the protocol have in common, as a client sees them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ekiden.client.checking import LeftOut
from ekiden.errors import CallLost, ServerError
from ekiden.transports.client.decoding import Held
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.jsonrpc import says_restart

__all__ = ["ClientRequest", "ClientSession", "Era", "Hooks", "read_error"]

Era: TypeAlias = Literal["modern", "legacy"]


class Hooks(msgspec.Struct):
    """Called with what a request brings besides its result."""

    progress: Callable[[JsonObject], None] | None = None
    notification: Callable[[JsonObject], None] | None = None
    question: Callable[[str, JsonObject], Awaitable[JsonObject | LeftOut]] | None = None
    """Answers what a server of 2025 asks on the stream of this request, in place of the callbacks."""
    held: Held | None = None
    """Counts the response, if it is passed on."""


class ClientRequest(msgspec.Struct):
    """One request to send."""

    method: str
    params: JsonObject
    name: str | None = None
    """What it addresses: a tool, a prompt, a URI."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    hooks: Hooks = msgspec.field(default_factory=Hooks)
    says: JsonObject = msgspec.field(default_factory=dict[str, Any])
    """What its `_meta` says in place of what the client says in every request, to servers of 2026."""
    trace: str | None = None
    """The `traceparent` that it was sent with. Set by the connection, if this process traces."""


class ClientSession(Protocol):
    """A way to client to a server, once it is known how it speaks."""

    era: Era
    version: str
    server_info: JsonObject
    capabilities: JsonObject
    instructions: str | None

    async def request(self, request: ClientRequest) -> JsonObject:
        """Send a request; its result, or `ServerError`."""
        ...

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification."""
        ...

    async def abandon(self) -> None:
        """Forget a session that the server no longer knows; the link stays open."""
        ...

    async def close(self) -> None:
        """End the session at the server, if the era has sessions."""
        ...


def read_error(message: Mapping[str, Any]) -> ServerError:
    """The exception for an error response; what the server left out or spelled wrongly is filled in."""
    error = message.get("error")
    if not is_object(error):
        return ServerError("The server sent an error without content", code=-32603)
    code, text, data = error.get("code"), error.get("message"), error.get("data")
    kind = CallLost if says_restart(data) else ServerError
    return kind(
        text if isinstance(text, str) else "The server gave no reason",
        code=code if isinstance(code, int) else -32603,
        data=data,
    )
