"""What goes wrong for a client, beyond what the server answered."""

from collections.abc import Mapping
from typing import Any

from ekiden.errors import EkidenError, ProtocolError, TransportError

__all__ = [
    "CallCancelled",
    "CallTimeout",
    "CannotAnswer",
    "InvalidResult",
    "ServerError",
    "TooManyRounds",
    "error_from",
]


class ServerError(ProtocolError):
    """The server answered with a JSON-RPC error: `code`, `message` and `data` are its own."""


class InvalidResult(EkidenError):
    """The server's result breaks the protocol, or the tool's own output schema."""


class CannotAnswer(EkidenError):
    """The server asks for something that no callback answers. Nothing was asked of the user."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        asked = ", ".join(f"{key} ({kind})" for key, kind in kinds.items())
        super().__init__(f"No callback answers {asked}; give the client one")
        self.kinds = dict(kinds)


class CallCancelled(EkidenError):
    """The task that the call had become was cancelled, by somebody else or by the server."""


class TooManyRounds(EkidenError):
    """The call did not end within its cap on rounds."""


class CallTimeout(TransportError):
    """The call did not end in time; it was cancelled at the server."""


def error_from(message: Mapping[str, Any]) -> ServerError:
    """The exception for an error response."""
    error = message.get("error")
    if not isinstance(error, Mapping):
        return ServerError("The server sent an error without content", code=-32603)
    code, text = error.get("code"), error.get("message")  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return ServerError(
        text if isinstance(text, str) else "The server gave no reason",
        code=code if isinstance(code, int) else -32603,
        data=error.get("data"),  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]
    )
