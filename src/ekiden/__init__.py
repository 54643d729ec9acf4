"""ekiden: an MCP SDK built around multi round-trip requests.

Names are loaded when they are first used, so that importing ekiden costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ekiden.version import __version__ as __version__

if TYPE_CHECKING:
    from ekiden.client.checking import LeftOut
    from ekiden.client.client import Client
    from ekiden.client.pending import PendingCall
    from ekiden.client.target import ClientLimits
    from ekiden.client.tasks.handle import TaskHandle, TaskSnapshot
    from ekiden.errors import (
        CallCancelled,
        CallLost,
        CallTimeout,
        CannotAnswer,
        EkidenError,
        InsufficientScope,
        InvalidParams,
        InvalidResult,
        MissingCapability,
        NonDeterminismError,
        ProtocolError,
        RegistrationError,
        ResourceNotFound,
        ServerError,
        StatusError,
        StepFailed,
        StoreRefused,
        StoreUnavailable,
        ToolError,
        TooManyRounds,
        TooMuch,
        TransportError,
        UnverifiedSkill,
        UsageError,
        WrongAnswer,
    )
    from ekiden.pages.people.notifiers import MailNotifier, WebhookNotifier
    from ekiden.pages.people.pages import Pages
    from ekiden.rounds.asks import Person
    from ekiden.rounds.interpreter import Retry
    from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome, Task
    from ekiden.server.auth.auth import Auth
    from ekiden.server.auth.introspection import IntrospectionVerifier
    from ekiden.server.auth.jwt import JWTVerifier
    from ekiden.server.auth.static import StaticTokens
    from ekiden.server.auth.token import TokenVerifier, VerifiedToken
    from ekiden.server.context import Context
    from ekiden.server.legacy.keeper import SessionLimits
    from ekiden.server.middleware import CallNext, Middleware
    from ekiden.server.operations.card import ServerCard
    from ekiden.server.operations.rate_limit import Rate, RateLimit
    from ekiden.server.operations.routes import HttpRequest, HttpResponse
    from ekiden.server.outgoing import Outgoing, OutgoingMiddleware, SendOn
    from ekiden.server.people.port import Notice
    from ekiden.server.questions.forms import Accepted, Answer, Cancelled, Declined
    from ekiden.server.questions.input_required import InputRequired
    from ekiden.server.questions.media import Audio, File, Image
    from ekiden.server.registration.catalog import CacheHint
    from ekiden.server.registration.tools import CancelledTask
    from ekiden.server.sealing.tokens import RoundLimits
    from ekiden.server.server import Server
    from ekiden.stores.store import Store
    from ekiden.stories.events import Recording
    from ekiden.tasks.runner import TaskLimits
    from ekiden.transports.server.asgi import HttpLimits
    from ekiden.wire.modern import Request
    from ekiden.wire.principal import Principal

__all__ = [
    "Accepted",
    "Answer",
    "Audio",
    "Auth",
    "CacheHint",
    "CallCancelled",
    "CallLost",
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
    "File",
    "HttpLimits",
    "HttpRequest",
    "HttpResponse",
    "Image",
    "InputRequired",
    "InsufficientScope",
    "Interim",
    "IntrospectionVerifier",
    "InvalidParams",
    "InvalidResult",
    "JWTVerifier",
    "LeftOut",
    "MailNotifier",
    "Middleware",
    "MissingCapability",
    "NonDeterminismError",
    "Notice",
    "Outcome",
    "Outgoing",
    "OutgoingMiddleware",
    "Pages",
    "PendingCall",
    "Person",
    "Principal",
    "ProtocolError",
    "Rate",
    "RateLimit",
    "Recording",
    "RegistrationError",
    "Request",
    "ResourceNotFound",
    "Retry",
    "RoundLimits",
    "SendOn",
    "Server",
    "ServerCard",
    "ServerError",
    "SessionLimits",
    "StaticTokens",
    "StatusError",
    "StepFailed",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskHandle",
    "TaskLimits",
    "TaskSnapshot",
    "TokenVerifier",
    "TooManyRounds",
    "TooMuch",
    "ToolError",
    "TransportError",
    "UnverifiedSkill",
    "UsageError",
    "VerifiedToken",
    "WebhookNotifier",
    "WrongAnswer",
]

_HOMES = {
    "Notice": "ekiden.server.people.port",
    "Person": "ekiden.rounds.asks",
    "WebhookNotifier": "ekiden.pages.people.notifiers",
    "MailNotifier": "ekiden.pages.people.notifiers",
    "Pages": "ekiden.pages.people.pages",
    "LeftOut": "ekiden.client.checking",
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
    "Audio": "ekiden.server.questions.media",
    "File": "ekiden.server.questions.media",
    "Image": "ekiden.server.questions.media",
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
    "Outgoing": "ekiden.server.outgoing",
    "OutgoingMiddleware": "ekiden.server.outgoing",
    "SendOn": "ekiden.server.outgoing",
    "Request": "ekiden.wire.modern",
    "Server": "ekiden.server.server",
    "ServerCard": "ekiden.server.operations.card",
    "SessionLimits": "ekiden.server.legacy.keeper",
    "CancelledTask": "ekiden.server.registration.tools",
    "Task": "ekiden.rounds.outcome",
    "Store": "ekiden.stores.store",
    "Recording": "ekiden.stories.events",
    "TaskLimits": "ekiden.tasks.runner",
    "Retry": "ekiden.rounds.interpreter",
    "HttpRequest": "ekiden.server.operations.routes",
    "HttpResponse": "ekiden.server.operations.routes",
    "Rate": "ekiden.server.operations.rate_limit",
    "RateLimit": "ekiden.server.operations.rate_limit",
    "Principal": "ekiden.wire.principal",
    "Auth": "ekiden.server.auth.auth",
    "JWTVerifier": "ekiden.server.auth.jwt",
    "IntrospectionVerifier": "ekiden.server.auth.introspection",
    "StaticTokens": "ekiden.server.auth.static",
    "TokenVerifier": "ekiden.server.auth.token",
    "VerifiedToken": "ekiden.server.auth.token",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ekiden' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "ekiden.errors")), name)
    globals()[name] = value
    return value
