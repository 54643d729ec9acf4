"""ekiden: an MCP SDK built around multi round-trip requests.

Names are loaded when they are first used, so that importing ekiden costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ekiden.client.client import Client
    from ekiden.client.pending import PendingCall
    from ekiden.client.target import ClientLimits
    from ekiden.client.tasks.handle import TaskHandle, TaskSnapshot
    from ekiden.errors import (
        CallCancelled,
        CallTimeout,
        CannotAnswer,
        EkidenError,
        InvalidParams,
        InvalidResult,
        MissingCapability,
        NonDeterminismError,
        ProtocolError,
        RegistrationError,
        ServerError,
        StepFailed,
        StoreRefused,
        StoreUnavailable,
        ToolError,
        TooManyRounds,
        TransportError,
        UsageError,
    )
    from ekiden.rounds.interpreter import Retry
    from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome, Task
    from ekiden.server.context import Context
    from ekiden.server.legacy.keeper import SessionLimits
    from ekiden.server.middleware import CallNext, Middleware
    from ekiden.server.questions.forms import Accepted, Answer, Cancelled, Declined
    from ekiden.server.questions.input_required import InputRequired
    from ekiden.server.registration.catalog import CacheHint
    from ekiden.server.registration.tools import CancelledTask
    from ekiden.server.sealing.tokens import RoundLimits
    from ekiden.server.server import Server
    from ekiden.stores.store import Store
    from ekiden.tasks.runner import TaskLimits
    from ekiden.transports.server.asgi import HttpLimits
    from ekiden.wire.modern import Request

__all__ = [
    "Accepted",
    "Answer",
    "CacheHint",
    "CallCancelled",
    "CallNext",
    "CallTimeout",
    "Cancelled",
    "CancelledTask",
    "CannotAnswer",
    "Client",
    "ClientLimits",
    "Complete",
    "Context",
    "Declined",
    "EkidenError",
    "Failed",
    "HttpLimits",
    "InputRequired",
    "Interim",
    "InvalidParams",
    "InvalidResult",
    "Middleware",
    "MissingCapability",
    "NonDeterminismError",
    "Outcome",
    "PendingCall",
    "ProtocolError",
    "RegistrationError",
    "Request",
    "Retry",
    "RoundLimits",
    "Server",
    "ServerError",
    "SessionLimits",
    "StepFailed",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskHandle",
    "TaskLimits",
    "TaskSnapshot",
    "TooManyRounds",
    "ToolError",
    "TransportError",
    "UsageError",
]

_HOMES = {
    "TaskHandle": "ekiden.client.tasks.handle",
    "TaskSnapshot": "ekiden.client.tasks.handle",
    "Client": "ekiden.client.client",
    "ClientLimits": "ekiden.client.target",
    "PendingCall": "ekiden.client.pending",
    "Accepted": "ekiden.server.questions.forms",
    "Answer": "ekiden.server.questions.forms",
    "Cancelled": "ekiden.server.questions.forms",
    "Declined": "ekiden.server.questions.forms",
    "InputRequired": "ekiden.server.questions.input_required",
    "Interim": "ekiden.rounds.outcome",
    "RoundLimits": "ekiden.server.sealing.tokens",
    "CacheHint": "ekiden.server.registration.catalog",
    "CallNext": "ekiden.server.middleware",
    "Complete": "ekiden.rounds.outcome",
    "Context": "ekiden.server.context",
    "Failed": "ekiden.rounds.outcome",
    "HttpLimits": "ekiden.transports.server.asgi",
    "Middleware": "ekiden.server.middleware",
    "Outcome": "ekiden.rounds.outcome",
    "Request": "ekiden.wire.modern",
    "Server": "ekiden.server.server",
    "SessionLimits": "ekiden.server.legacy.keeper",
    "CancelledTask": "ekiden.server.registration.tools",
    "Task": "ekiden.rounds.outcome",
    "Store": "ekiden.stores.store",
    "TaskLimits": "ekiden.tasks.runner",
    "Retry": "ekiden.rounds.interpreter",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ekiden' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "ekiden.errors")), name)
    globals()[name] = value
    return value
