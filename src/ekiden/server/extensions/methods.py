"""How a function of an extension is called: its parameters are those of the message, by name."""

from collections.abc import Callable, Mapping
from typing import Any

from ekiden.errors import InvalidParams, UsageError
from ekiden.rounds.asks import declares
from ekiden.rounds.outcome import Outcome
from ekiden.server.extensions.results import checked, outcome_of
from ekiden.server.handlers import Handler
from ekiden.server.registration.extensions import Answer, Hear, OfferedExtension
from ekiden.server.registration.signatures import read_signature
from ekiden.signals import ArgumentsInvalid
from ekiden.transports.server.port import Stream
from ekiden.wire.extensions.names import declaring
from ekiden.wire.json import JsonObject
from ekiden.wire.modern import Modern, Request
from ekiden.wire.principal import Principal, require

__all__ = ["ExtensionContext", "ExtensionFunction", "Living"]


class Living:
    """An extension while its server runs."""

    def __init__(self, offered: OfferedExtension, dialect: Modern, *, needs_declaring: bool) -> None:
        self.offered = offered
        self.dialect = dialect
        self.needs_declaring = needs_declaring
        """Whether only clients that declare the extension may use its methods."""
        self.state: Any = None
        """What its lifespan yielded."""


class ExtensionContext:
    """What a function of an extension can use: `async def find(text: str, ctx: ExtensionContext)`."""

    def __init__(self, request: Request, stream: Stream | None, living: Living) -> None:
        self.request = request
        """The message: its parameters, its `_meta`, its headers."""
        self._stream = stream
        self._living = living

    @property
    def state(self) -> Any:
        """What the extension's lifespan yielded."""
        return self._living.state

    @property
    def principal(self) -> Principal | None:
        """The verified identity of who sent the message; None if the server verifies none."""
        return self.request.principal

    @property
    def client_settings(self) -> JsonObject | None:
        """What the client declares under the extension's identifier; None if it does not declare it."""
        capabilities, identifier = self.request.meta.capabilities, self._living.offered.identifier
        if not declares(capabilities, declaring(identifier)):
            return None
        settings: JsonObject = capabilities["extensions"][identifier]
        return settings

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification that belongs to the request, before its result."""
        if method not in self._living.offered.sends:
            raise UsageError(f"{method!r} must be one of the extension's `sends`")
        if self._stream is None:
            raise UsageError("a notification has no response, and so no way to send anything to its client")
        await self._stream.notify(method, dict(params or {}))


class ExtensionFunction:
    """An author's function, for a method or a notification of an extension."""

    def __init__(self, function: Callable[..., Any], what: str, scopes: frozenset[str] = frozenset()) -> None:
        self._what = what
        signature = read_signature(function, what=what, context=ExtensionContext)
        self._parameters = signature.parameters
        self._handler = Handler(function, signature.context, scopes=scopes)

    def answer(self, living: Living) -> Answer:
        """The function as what answers requests."""

        async def answer(request: Request, stream: Stream) -> Outcome:
            if living.needs_declaring:
                living.offered.require(request)
            require(request.principal, self._handler.scopes)
            value = await self._call(request, stream, living)
            return checked(outcome_of(value, request), living.offered, request, living.dialect)

        return answer

    def hear(self, living: Living) -> Hear:
        """The function as what takes notifications."""

        async def hear(request: Request) -> None:
            await self._call(request, None, living)

        return hear

    async def _call(self, request: Request, stream: Stream | None, living: Living) -> object:
        # A later revision of the extension may add parameters: those that the function lacks are left out.
        names = self._parameters.names
        given = {name: value for name, value in request.params.items() if name in names}
        try:
            bound = self._parameters.bind(given)
        except ArgumentsInvalid as problem:
            raise InvalidParams(f"Invalid params for {self._what}: {problem}") from None
        if self._handler.context is not None:
            bound[self._handler.context] = ExtensionContext(request, stream, living)
        value: object = await self._handler.call(**bound)
        return value
