"""How the extensions of a server become part of it."""

from collections.abc import Sequence
from typing import Any, Protocol

from ekiden.errors import RegistrationError
from ekiden.server.extensions.extension import Extension, intercepting
from ekiden.server.extensions.lifespans import LivingExtension
from ekiden.server.middleware import Middleware
from ekiden.server.outgoing import OutgoingMiddleware
from ekiden.server.registration.decorators import Authoring
from ekiden.server.registration.registry import Registry

__all__ = ["install", "offer"]


class Interceptable(Protocol):
    """What extensions need of an endpoint."""

    def intercept(self, middleware: Middleware) -> None:
        """Add a middleware inside those of the application."""
        ...

    def watch_outgoing(self, function: OutgoingMiddleware) -> None:
        """Add a function that sees what is sent."""
        ...


def offer(extensions: Sequence[Extension], registry: Registry, *, has_auth: bool) -> list[LivingExtension]:
    """Declare extensions, and let their methods be answered."""
    living: list[LivingExtension] = []
    for extension in extensions:
        given: Any = extension
        if not isinstance(given, Extension):
            raise RegistrationError(f"extensions= takes `Extension` objects, not {given!r}")
        if extension.scopes and not has_auth:
            raise RegistrationError(
                f"extension {extension.identifier!r} has scopes, which need `Server(auth=...)`"
            )
        living.append(extension.offered(registry.dialect))
        registry.extensions.add(living[-1].offered)
    return living


def install(
    extensions: Sequence[Extension],
    living: Sequence[LivingExtension],
    endpoint: Interceptable,
    server: Authoring,
) -> None:
    """Add what extensions intercept, and what they register on the server."""
    for extension, own in zip(extensions, living, strict=True):
        for middleware in intercepting(extension, own):
            endpoint.intercept(middleware)
        for function in extension.outlets:
            endpoint.watch_outgoing(function)
        extension.attach(server)
