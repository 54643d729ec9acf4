"""`Extension`: an extension of the protocol, as its author writes it (SEP-2133, SEP-3371)."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, overload

from ekiden.errors import RegistrationError
from ekiden.rounds.outcome import Outcome
from ekiden.server.auth.auth import check_scopes
from ekiden.server.extensions.lifespans import LivingExtension
from ekiden.server.extensions.methods import ExtensionFunction
from ekiden.server.extensions.results import checked
from ekiden.server.middleware import CallNext, Middleware
from ekiden.server.outgoing import OutgoingMiddleware
from ekiden.server.registration.decorators import Authoring
from ekiden.server.registration.extensions import OfferedExtension
from ekiden.wire.extensions.names import check_identifier, check_method, check_request, check_result_type
from ekiden.wire.json import ENCODE_ERRORS, JsonObject, decode, encode
from ekiden.wire.modern import Modern, Request

__all__ = ["Extension"]

F = TypeVar("F", bound=Callable[..., Any])


class Extension:
    """An extension of the protocol, for `Server(extensions=[...])`.

    `identifier` is a domain of yours in reverse, a slash and a name. `settings` are declared under it in the
    server's capabilities. With `mutual=True` only clients that declare the extension may call its methods;
    others get error -32021. `sends` are the notifications that its functions may send, `result_types` the
    types that its results may have besides `complete`. `requires` names capabilities of the core
    (`"resources"`) and identifiers of other extensions that the server must have when it starts. `lifespan`
    is a function that returns an async context manager; what it yields is `ctx.state`. With
    `sessions=False`, clients of 2025 are not offered it.
    """

    def __init__(
        self,
        identifier: str,
        *,
        settings: Mapping[str, Any] | None = None,
        mutual: bool = False,
        sends: Collection[str] = (),
        result_types: Collection[str] = (),
        requires: Iterable[str] = (),
        lifespan: Callable[[], AbstractAsyncContextManager[object]] | None = None,
        sessions: bool = True,
    ) -> None:
        self.identifier = check_identifier(identifier)
        self.settings = _spelled(identifier, settings or {})
        self._mutual = mutual
        self._sends = frozenset(check_method(identifier, name) for name in _listed("sends", sends))
        types = _listed("result_types", result_types)
        self._result_types = frozenset(check_result_type(identifier, name) for name in types)
        self._requires = tuple(_listed("requires", requires))
        self._lifespan = lifespan
        self._sessions = sessions
        self.scopes: frozenset[str] = frozenset()
        """All scopes that its methods need."""
        self._methods: dict[str, ExtensionFunction] = {}
        self._hears: dict[str, ExtensionFunction] = {}
        self.interceptors: list[tuple[Middleware, frozenset[str]]] = []
        self.outlets: list[OutgoingMiddleware] = []
        """What sees messages before they are sent."""
        self._is_offered = False

    # What authors register

    def method(self, name: str, *, scopes: Sequence[str] = ()) -> Callable[[F], F]:
        """Answer a method: `@extension.method("receipts/list")`.

        The function's parameters are those of the request; a parameter of type `ExtensionContext` gets the
        context. It returns the result's fields: a dict, a model, a struct or None; or an `ExtensionResult`.
        """

        def register(function: F) -> F:
            self._claim(check_request(self.identifier, name))
            needed = frozenset(check_scopes(scopes))
            self.scopes |= needed
            self._methods[name] = ExtensionFunction(function, f"method {name!r}", needed)
            return function

        return register

    def notification(self, name: str) -> Callable[[F], F]:
        """Take a notification of clients: `@extension.notification("notifications/receipts/seen")`."""

        def register(function: F) -> F:
            self._claim(name)
            self._hears[name] = ExtensionFunction(function, f"notification {name!r}")
            return function

        return register

    @overload
    def intercept(self, function: Middleware) -> Middleware: ...
    @overload
    def intercept(self, *, methods: Collection[str]) -> Callable[[Middleware], Middleware]: ...
    def intercept(self, function: Middleware | None = None, *, methods: Collection[str] = ()) -> Any:
        """Register `async def f(request, call_next)`, called around requests: all, or those of `methods`.

        It runs inside all middleware of the server, and inside that of the extensions before this one. It may
        return an `ExtensionResult`. A server does not start if it has none of `methods`.
        """
        chosen = frozenset(_listed("methods", methods))
        if function is not None:
            self._add_interceptor(function, chosen)
            return function

        def register(decorated: Middleware) -> Middleware:
            self._add_interceptor(decorated, chosen)
            return decorated

        return register

    def outgoing(self, function: OutgoingMiddleware) -> OutgoingMiddleware:
        """Register `async def f(message, send)`, called with every message before it is sent."""
        self._check_open()
        self.outlets.append(function)
        return function

    def _add_interceptor(self, function: Middleware, methods: frozenset[str]) -> None:
        self._check_open()
        self.interceptors.append((function, methods))

    def _claim(self, name: str) -> None:
        self._check_open()
        check_method(self.identifier, name)
        if name in self._methods or name in self._hears or name in self._sends:
            raise RegistrationError(f"extension {self.identifier!r} has {name!r} already")

    def _check_open(self) -> None:
        if self._is_offered:
            raise RegistrationError(
                f"extension {self.identifier!r} is in use: register everything before `Server(...)`"
            )

    # What a server takes

    def offered(self, dialect: Modern) -> LivingExtension:
        """The extension as one server offers it. Nothing can be registered any more."""
        self._is_offered = True
        offered = OfferedExtension(
            identifier=self.identifier,
            settings=self.settings,
            sends=self._sends,
            result_types=self._result_types,
            in_sessions=self._sessions,
        )
        living = LivingExtension(offered, dialect, needs_declaring=self._mutual)
        living.lifespan, living.requires = self._lifespan, self._requires
        living.intercepts = frozenset[str]().union(*(methods for _, methods in self.interceptors))
        offered.methods = {name: function.answer(living) for name, function in self._methods.items()}
        offered.hears = {name: function.hear(living) for name, function in self._hears.items()}
        return living

    def attach(self, server: Authoring) -> None:
        """Register more on a server that has this extension, for subclasses: tools, resources."""


def intercepting(extension: Extension, living: LivingExtension) -> list[Middleware]:
    """The interceptors of an extension as middleware whose results are checked."""
    return [_interceptor(living, function, methods) for function, methods in extension.interceptors]


def _interceptor(living: LivingExtension, function: Middleware, methods: frozenset[str]) -> Middleware:
    @functools.wraps(function)
    async def intercepted(request: Request, call_next: CallNext) -> Outcome:
        if methods and request.method not in methods:
            return await call_next(request)
        return checked(await function(request, call_next), living.offered, request, living.dialect)

    return intercepted


def _listed(what: str, names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise RegistrationError(f"{what} is a list: write {what}=[{names!r}]")
    return list(names)


def _spelled(identifier: str, settings: Mapping[str, Any]) -> JsonObject:
    try:
        spelled: JsonObject = decode(encode(dict(settings)))
    except ENCODE_ERRORS as error:
        raise RegistrationError(
            f"extension {identifier!r}: settings must be a JSON object: {error}"
        ) from None
    return spelled
