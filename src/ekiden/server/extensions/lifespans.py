"""What extensions acquire before the first request and release after the last, and what they need first."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeAlias

from ekiden.errors import UsageError
from ekiden.server.extensions.methods import Living
from ekiden.server.registration.registry import Registry
from ekiden.wire.extensions.names import CLIENT_METHODS

__all__ = ["Enter", "LivingExtension", "around_extensions"]

Enter: TypeAlias = Callable[[], AbstractAsyncContextManager[object]]


class LivingExtension(Living):
    """An extension of a server, with its lifespan and what it requires."""

    lifespan: Enter | None = None
    requires: tuple[str, ...] = ()
    intercepts: frozenset[str] = frozenset()
    """The methods that its interceptors name."""


def around_extensions(
    lifespan: Enter | None, extensions: Sequence[LivingExtension], registry: Registry
) -> Enter | None:
    """The server's lifespan, then those of its extensions in order; they are left in reverse."""
    if not any(each.lifespan or each.requires or each.intercepts for each in extensions):
        return lifespan

    @asynccontextmanager
    async def entered() -> AsyncGenerator[object, None]:
        for extension in extensions:
            _check_requirements(extension, registry)
            _check_intercepted(extension, registry)
        async with AsyncExitStack() as stack:
            state = None if lifespan is None else await stack.enter_async_context(lifespan())
            for extension in extensions:
                if extension.lifespan is not None:
                    extension.state = await stack.enter_async_context(extension.lifespan())
            yield state

    return entered


def _check_requirements(extension: LivingExtension, registry: Registry) -> None:
    """Refuse to start where an extension lacks a capability of the core or another extension."""
    capabilities = registry.capabilities()
    for needed in extension.requires:
        if needed not in capabilities and needed not in capabilities.get("extensions", {}):
            own = extension.offered.identifier
            raise UsageError(f"extension {own!r} requires {needed!r}, which this server does not have")


def _check_intercepted(extension: LivingExtension, registry: Registry) -> None:
    """Refuse to start where an interceptor is for a method that no client calls: it would never run."""
    unknown = extension.intercepts - CLIENT_METHODS - registry.extensions.answers().keys()
    if unknown:
        raise UsageError(
            f"extension {extension.offered.identifier!r} intercepts {', '.join(map(repr, sorted(unknown)))}, "
            "which clients cannot call here: neither the protocol nor an extension of this server has it"
        )
