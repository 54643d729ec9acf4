"""`ClientExtension`: an extension of the protocol, as the author of a client's side of it writes it."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import msgspec

from ekiden.client.sessions.session import ClientRequest
from ekiden.errors import RegistrationError
from ekiden.wire.extensions.names import check_identifier, check_method, check_result_type
from ekiden.wire.json import ENCODE_ERRORS, JsonObject, decode, encode

__all__ = ["ClientExtension", "Finish", "Heard", "Intercept", "Interrupted", "SendRequest"]

SendRequest: TypeAlias = Callable[[ClientRequest], Awaitable[JsonObject]]
Intercept: TypeAlias = Callable[[ClientRequest, SendRequest], Awaitable[JsonObject]]
"""Called around every request: look at it, send it or not, look at its result."""
Heard: TypeAlias = Callable[[JsonObject], None]
"""Called with the parameters of a notification."""


class Interrupted(msgspec.Struct):
    """A call that was answered with a result of an extension's type."""

    method: str
    name: str
    """The tool, the prompt or the URI that was called."""
    result: JsonObject
    request: Callable[[str, Mapping[str, Any]], Awaitable[JsonObject]]
    """Sends a request to the same server: `await call.request("receipts/redeem", {...})`."""
    state: Any = None
    """What the extension's lifespan yielded."""


Finish: TypeAlias = Callable[[Interrupted], Awaitable[Mapping[str, Any]]]
"""Returns the final result of a call, as the server would have sent it."""


class ClientExtension:
    """An extension of the protocol, for `Client(extensions=[...])`.

    `identifier` and `settings` are declared in the client's capabilities. `lifespan` is a function that
    returns an async context manager; it is entered before the client connects, and left after it has closed.
    """

    def __init__(
        self,
        identifier: str,
        *,
        settings: Mapping[str, Any] | None = None,
        lifespan: Callable[[], AbstractAsyncContextManager[object]] | None = None,
    ) -> None:
        self.identifier = check_identifier(identifier)
        try:
            self.settings: JsonObject = decode(encode(dict(settings or {})))
        except ENCODE_ERRORS as error:
            text = f"extension {identifier!r}: settings must be a JSON object: {error}"
            raise RegistrationError(text) from None
        self.lifespan = lifespan
        self.finishers: dict[str, Finish] = {}
        self.heard: dict[str, Heard] = {}
        self.interceptors: list[Intercept] = []

    def result(self, result_type: str) -> Callable[[Finish], Finish]:
        """Finish calls that are answered with a result of this type: `@extension.result("receipt")`.

        The function gets the call, with its result so far, and returns the final one.
        """
        check_result_type(self.identifier, result_type)
        if result_type in self.finishers:
            raise RegistrationError(f"extension {self.identifier!r} has {result_type!r} already")

        def register(function: Finish) -> Finish:
            self.finishers[result_type] = function
            return function

        return register

    def notification(self, name: str) -> Callable[[Heard], Heard]:
        """Call a plain function with the parameters of every notification of this name."""
        check_method(self.identifier, name)
        if name in self.heard:
            raise RegistrationError(f"extension {self.identifier!r} has {name!r} already")

        def register(function: Heard) -> Heard:
            self.heard[name] = function
            return function

        return register

    def intercept(self, function: Intercept) -> Intercept:
        """Register `async def f(request, send)`, called around every request that the client sends.

        `await send(request)` gives the result. The extensions before this one in the list are outside.
        """
        self.interceptors.append(function)
        return function
