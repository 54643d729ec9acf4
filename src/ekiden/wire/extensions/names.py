"""Names in extensions: how an identifier is spelled (SEP-2133), and which names the protocol has already."""

import re
from typing import Any, Final

from ekiden.errors import RegistrationError

__all__ = [
    "CLIENT_METHODS",
    "CORE_METHODS",
    "UI",
    "check_identifier",
    "check_method",
    "check_request",
    "check_result_type",
    "declaring",
]

_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_IDENTIFIER: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})+/{_NAME}")
"""The rules for keys of `_meta`, with a prefix of two labels or more: the reverse of a domain."""
_METHOD: Final = re.compile(r"[A-Za-z0-9_$.-]+(?:/[A-Za-z0-9_$.-]+)*")
"""Characters that a header can carry, because `Mcp-Method` mirrors the method."""

CORE_METHODS: Final = frozenset(
    {
        "completion/complete",
        "elicitation/create",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "roots/list",
        "sampling/createMessage",
        "server/discover",
        "subscriptions/listen",
        "tools/call",
        "tools/list",
        "notifications/cancelled",
        "notifications/elicitation/complete",
        "notifications/initialized",
        "notifications/message",
        "notifications/progress",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/roots/list_changed",
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    }
)
"""The methods and notifications of the protocol itself, in any version."""

_NOTIFICATIONS: Final = "notifications/"
_OF_SERVERS: Final = ("elicitation/create", "roots/list", "sampling/createMessage")
_OF_TASKS: Final = ("cancel", "get", "input_response", "list", "result", "update")

CLIENT_METHODS: Final = frozenset(
    method for method in CORE_METHODS if not method.startswith(_NOTIFICATIONS) and method not in _OF_SERVERS
) | {f"tasks/{name}" for name in _OF_TASKS}
"""The methods that clients call, of the protocol and of tasks, in any version."""

_CORE_RESULT_TYPES: Final = frozenset({"complete", "input_required"})


UI: Final = "io.modelcontextprotocol/ui"
"""The extension for pages of apps. It has no methods: its pages are resources, which tools name."""


def check_identifier(identifier: object) -> str:
    """The identifier of an extension, if it is one."""
    if not isinstance(identifier, str) or not _IDENTIFIER.fullmatch(identifier):
        raise RegistrationError(
            f"{identifier!r} is not the identifier of an extension: write a domain of yours in reverse, a "
            "slash and a name, as in 'com.example/receipts'"
        )
    return identifier


def check_method(identifier: str, method: object) -> str:
    """The name of a method or notification that an extension may have."""
    if not isinstance(method, str) or not _METHOD.fullmatch(method):
        raise RegistrationError(
            f"extension {identifier!r}: {method!r} is not the name of a method; 'receipts/list' is one"
        )
    if method in CORE_METHODS:
        raise RegistrationError(
            f"extension {identifier!r}: {method!r} is a method of the protocol, which it can only intercept"
        )
    return method


def check_request(identifier: str, method: object) -> str:
    """The name of a method that an extension may answer."""
    name = check_method(identifier, method)
    if name.startswith((_NOTIFICATIONS, "rpc.")):
        raise RegistrationError(
            f"extension {identifier!r}: {name!r} cannot be a method: {_NOTIFICATIONS!r} is for "
            "notifications, and 'rpc.' for JSON-RPC itself"
        )
    return name


def check_result_type(identifier: str, result_type: object) -> str:
    """The name of a result type that an extension may have."""
    if not isinstance(result_type, str) or not result_type:
        raise RegistrationError(f"extension {identifier!r}: {result_type!r} is not the name of a result type")
    if result_type in _CORE_RESULT_TYPES:
        raise RegistrationError(f"extension {identifier!r}: {result_type!r} is a result type of the protocol")
    return result_type


def declaring(identifier: str) -> dict[str, Any]:
    """The capability of a client or server that has the extension."""
    return {"extensions": {identifier: {}}}
