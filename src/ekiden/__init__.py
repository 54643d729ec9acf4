"""ekiden: an MCP SDK built around multi round-trip requests.

Names are loaded when they are first used, so that importing ekiden costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ekiden.errors import (
        EkidenError,
        InvalidParams,
        MissingCapability,
        ProtocolError,
        RegistrationError,
        ToolError,
        UsageError,
    )
    from ekiden.rounds.outcome import Complete, Failed, Outcome
    from ekiden.server.catalog import Cache
    from ekiden.server.context import Context
    from ekiden.server.endpoint import CallNext, Middleware
    from ekiden.server.server import Server
    from ekiden.transports.asgi import Limits
    from ekiden.wire.modern import Request

__all__ = [
    "Cache",
    "CallNext",
    "Complete",
    "Context",
    "EkidenError",
    "Failed",
    "InvalidParams",
    "Limits",
    "Middleware",
    "MissingCapability",
    "Outcome",
    "ProtocolError",
    "RegistrationError",
    "Request",
    "Server",
    "ToolError",
    "UsageError",
]

_HOMES = {
    "Cache": "ekiden.server.catalog",
    "CallNext": "ekiden.server.endpoint",
    "Complete": "ekiden.rounds.outcome",
    "Context": "ekiden.server.context",
    "Failed": "ekiden.rounds.outcome",
    "Limits": "ekiden.transports.asgi",
    "Middleware": "ekiden.server.endpoint",
    "Outcome": "ekiden.rounds.outcome",
    "Request": "ekiden.wire.modern",
    "Server": "ekiden.server.server",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ekiden' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "ekiden.errors")), name)
    globals()[name] = value
    return value
