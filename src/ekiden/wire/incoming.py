"""One HTTP request as a transport has read it: its head, its body, and who sent it. No I/O."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from ekiden.errors import ParseError, ProtocolError
from ekiden.wire import jsonrpc
from ekiden.wire.headers import Headers
from ekiden.wire.json import MAX_VALUES, JsonObject, decode
from ekiden.wire.principal import Principal

__all__ = ["PENDING", "ROUTED", "Authority", "Incoming", "Refusal", "Watching"]


class Refusal(NamedTuple):
    """How a request is refused on the level of HTTP."""

    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


ROUTED: Final = Refusal(0, "")
"""In place of a refusal: the path is not that of the endpoint, but something else is served there."""
PENDING: Final = Refusal(0, "")
"""In place of a refusal: whether the request is admitted is not known yet; `Incoming.admission` will tell."""


class Watching(Protocol):
    """Something that is watched until it is cancelled."""

    def cancel(self) -> None:
        """Watch it no more."""
        ...


class Authority(Protocol):
    """What a request was admitted by. It may end before the answer does."""

    def watch(self, incoming: "Incoming", end: Callable[[], None]) -> Watching:
        """Call `end` when the request would not be admitted any more, unless that is cancelled before."""
        ...


class Incoming(msgspec.Struct, gc=False):
    """One HTTP request that is here as a whole."""

    method: str
    path: str
    headers: Headers
    refusal: Refusal | None
    """Why it is refused; then its body may be missing. Or `ROUTED`, or `PENDING`."""
    body: bytes
    repeating: list[tuple[bytes, bytes]] | None = None
    """All headers as they were sent, if one was sent twice; else None."""
    address: str | None = None
    """The client's IP address, as far as it is known."""
    most_values: int = MAX_VALUES
    """Values that the JSON in its body may have."""
    query: bytes = b""
    """What follows the `?`. Our own connections set it only if somebody looks at it."""
    asgi: MutableMapping[str, Any] | None = None
    """The ASGI scope, where the server is mounted in another application."""
    principal: Principal | None = None
    """Who sent it, if the gate has verified that."""
    authority: Authority | None = None
    """The access token that it was admitted by: a stream of it lasts no longer. None if there is none."""
    admission: Awaitable[Refusal | None] | None = None
    """Tells how a `PENDING` request is refused; None if it is not."""
    _value: Any = msgspec.UNSET
    """What was read: the JSON, or an `_Unreadable`."""

    def let_go(self, message: JsonObject) -> None:
        """Hold only `message` of the body from now on, for the log: the answer may take long."""
        self.body, self._value = b"", message

    def value(self) -> Any:
        """The JSON in its body, or `ParseError`. It is read once, however often this is called."""
        value = self._value
        if value is msgspec.UNSET:
            try:
                value = self._value = decode(self.body, self.most_values)
            except ParseError as error:
                self._value = _Unreadable(error.message)
                raise
        elif value.__class__ is _Unreadable:
            raise ParseError(value.reason)
        return value

    def request_id(self) -> jsonrpc.RequestId | None:
        """The id of the request that a POST brings; None if it brings none, or several messages."""
        try:
            return jsonrpc.read(self.value() if self.method == "POST" else None).id
        except ProtocolError:
            return None


class _Unreadable(NamedTuple):
    """Why a body cannot be read. Not the exception itself: its traceback would hold the request."""

    reason: str
