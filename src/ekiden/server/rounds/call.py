"""One request with the handler that answers it, and the arguments that it is called with."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ekiden.server.handlers import Handler
from ekiden.server.registration.results import Ending
from ekiden.transports.server.port import Stream
from ekiden.wire.json import JsonObject, copied
from ekiden.wire.modern import Request

__all__ = ["Call", "unshared"]

_IMMUTABLE: Final = frozenset({str, int, float, bool, type(None)})


class Call(msgspec.Struct):
    """One request, with the handler that answers it."""

    request: Request
    stream: Stream
    state: object
    handler: Handler
    raw: JsonObject
    """The arguments as the client sent them."""
    bound: dict[str, Any]
    """The arguments as the handler gets them, validated and converted."""
    bind: Callable[[dict[str, Any]], dict[str, Any]]
    """Makes `bound` from `raw`, for another run of the handler."""
    title: str
    """Names the handler in logs and errors."""
    ending: Ending


def unshared(arguments: JsonObject) -> JsonObject:
    """Arguments that no other run of the handler can change: a copy, unless all values are immutable."""
    for value in arguments.values():
        if type(value) not in _IMMUTABLE:
            own: JsonObject = copied(arguments)
            return own
    return arguments
