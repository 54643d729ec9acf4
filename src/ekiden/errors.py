"""Every exception that ekiden raises on purpose, split by what the caller does next.

    EkidenError
    ├── UsageError               you misused the library: change the code that calls it
    │   ├── RegistrationError    a tool, prompt, resource or completion cannot be registered as written
    │   └── NonDeterminismError  a handler took another way than in an earlier round of the same call
    ├── ProtocolError            one JSON-RPC error: what the peer sent cannot be served
    │   ├── ParseError                 -32700  the bytes are no JSON
    │   ├── InvalidRequest             -32600  the JSON is no JSON-RPC request
    │   ├── MethodNotFound             -32601
    │   ├── InvalidParams              -32602
    │   ├── InternalError              -32603
    │   ├── HeaderMismatch             -32020  the HTTP headers and the body disagree
    │   ├── MissingCapability          -32021  the client did not declare what the request needs
    │   └── UnsupportedVersion         -32022
    ├── TransportError           the connection failed: nothing is wrong with the message
    │   └── TooMuch              the peer sends more than is taken of it
    ├── StoreUnavailable         the store cannot be reached or written to right now: nothing was changed
    ├── StoreRefused             the store cannot keep this value, now or later: nothing was changed
    ├── StepFailed               a step raised, now or in an earlier round: catch it as you would the original
    └── ToolError                raised by a tool's author: the text is shown to the model

A `ProtocolError` carries its facts as attributes; its message may reach the wire, so nothing
secret goes into it. Handlers may raise any `ProtocolError` to answer with exactly that error.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

__all__ = [
    "EkidenError",
    "HeaderMismatch",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "MethodNotFound",
    "MissingCapability",
    "NonDeterminismError",
    "ParseError",
    "ProtocolError",
    "RegistrationError",
    "StepFailed",
    "StoreRefused",
    "StoreUnavailable",
    "TooMuch",
    "ToolError",
    "TransportError",
    "UnsupportedVersion",
    "UsageError",
]


class EkidenError(Exception):
    """The root: catches everything that ekiden raises on purpose."""


class UsageError(EkidenError):
    """The library was called in a way that cannot work; the message says what to change."""


class RegistrationError(UsageError):
    """A handler cannot be registered as it is written."""


class NonDeterminismError(UsageError):
    """A handler that is run again over its journal did something else than before."""

    def __init__(self, message: str, *, before: str, now: str) -> None:
        super().__init__(f"{message}: before, {before}; now, {now}")
        self.before = before
        self.now = now


class StepFailed(EkidenError):
    """A step raised. `type` and `message` are those of the exception, in whichever round it was."""

    def __init__(self, type: str, message: str) -> None:  # noqa: A002  the name that reads best at the catch
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


class TransportError(EkidenError):
    """The connection to the peer failed or was closed."""


class TooMuch(TransportError):
    """The peer sent more than is taken of it: a message, a line, a head or a stream is too large."""


class StoreRefused(EkidenError):
    """The store cannot keep a value, however often it is tried: it is too large, or no column takes it."""


class StoreUnavailable(EkidenError):
    """The store cannot be reached or written to right now. Nothing was changed: try again."""


class ToolError(EkidenError):
    """A tool failed in a way its caller should read: the text becomes the `isError` result."""


class ProtocolError(EkidenError):
    """A JSON-RPC error. `code`, `message` and `data` are what the peer sees."""

    default_code: ClassVar[int] = -32603

    def __init__(self, message: str, *, data: Any = None, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        self.code = self.default_code if code is None else code


class ParseError(ProtocolError):
    """The bytes are not JSON, or JSON that no peer may send: too deep, not UTF-8, NaN."""

    default_code = -32700


class InvalidRequest(ProtocolError):
    """The JSON is not one JSON-RPC request or notification."""

    default_code = -32600


class MethodNotFound(ProtocolError):
    """The method is not implemented here, or not part of the protocol version in use."""

    default_code = -32601


class InvalidParams(ProtocolError):
    """The parameters are malformed, or name something that does not exist."""

    default_code = -32602


class InternalError(ProtocolError):
    """The server failed; the reason is in its log, not in the message."""

    default_code = -32603


class HeaderMismatch(ProtocolError):
    """A mirrored HTTP header is missing, malformed, or differs from the body."""

    default_code = -32020


class MissingCapability(ProtocolError):
    """The request needs client capabilities that it does not declare."""

    default_code = -32021

    def __init__(self, required: Mapping[str, Any]) -> None:
        self.required = dict(required)
        super().__init__(
            f"The client did not declare a required capability: {', '.join(sorted(required))}",
            data={"requiredCapabilities": self.required},
        )


class UnsupportedVersion(ProtocolError):
    """The request's protocol version is not spoken here."""

    default_code = -32022

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        self.requested = requested
        self.supported = tuple(supported)
        super().__init__(
            "Unsupported protocol version", data={"supported": list(supported), "requested": requested}
        )
