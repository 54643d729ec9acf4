"""What `carry` needs of a host, whichever SDK it is built on."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from ekiden import CacheHint
from ekiden.engine import Carrier
from ekiden.integrations.carried.calls import Told

__all__ = ["Host", "about", "cache_of", "module_of", "name_of"]


class Host(Protocol):
    """A server of another SDK, as ekiden serves it."""

    def about(self) -> dict[str, Any]:
        """What it says about itself: the arguments of `ekiden.Server`."""
        ...

    def declarations(self) -> dict[str, dict[str, Any]]:
        """The settings of its extensions that have no methods, by identifier."""
        ...

    def left_behind(self) -> list[str]:
        """What cannot be carried, one line for each."""
        ...

    def protections(self) -> list[str]:
        """What decides who may call it, which cannot be carried either."""
        ...

    def guards(self) -> list[str]:
        """Middleware that may decide who may call what, which cannot be carried either."""
        ...

    def lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Its lifespan."""
        ...

    def listening(self, told: Told) -> AbstractContextManager[None]:
        """Be told of changes while the block runs."""
        ...

    async def register(self, carrier: Carrier, told: Told) -> None:
        """Register everything that it has now."""
        ...


def about(low: Any) -> dict[str, Any]:
    """What a low-level server of the official SDK says about itself, which both hosts have."""
    fields = ("title", "description", "website_url", "icons", "instructions")
    said = {name: value for name in fields if (value := getattr(low, name, None)) is not None}
    return {**said, "version": low.version or "0.0.0", "cache": cache_of(low, _LISTS)}


_LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover")


def cache_of(low: Any, methods: tuple[str, ...]) -> dict[str, CacheHint]:
    """For how long clients may keep the results of these methods."""
    hints = {method: low.cache_hints.get(method) for method in methods}
    return {method: CacheHint(hint.ttl_ms, hint.scope) for method, hint in hints.items() if hint is not None}


def module_of(thing: Callable[..., Any] | object) -> str:
    """Where something was defined: a function, or the class of an object."""
    return str(thing.__module__ if hasattr(thing, "__qualname__") else type(thing).__module__)


def name_of(thing: object) -> str:
    """What something is called: a function, or the class of an object."""
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))
