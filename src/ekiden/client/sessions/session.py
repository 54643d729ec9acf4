"""What the two eras of the protocol have in common, as a client sees them."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

__all__ = ["Ask", "Era", "EraChanged", "Hooks", "Session"]

Era: TypeAlias = Literal["modern", "legacy"]


class Hooks(msgspec.Struct):
    """Who is told of what a request brings besides its result."""

    progress: Callable[[dict[str, Any]], None] | None = None
    notification: Callable[[dict[str, Any]], None] | None = None


class Ask(msgspec.Struct):
    """One request to send."""

    method: str
    params: dict[str, Any]
    name: str | None = None
    """What it addresses: a tool, a prompt, a URI."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    hooks: Hooks = msgspec.field(default_factory=Hooks)


class EraChanged(Exception):
    """The server may not speak as it did: it was upgraded or downgraded. The request was not served."""

    def __init__(self, refusal: Exception, *, was_lost: bool = False) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        """What to raise if it turns out that nothing has changed."""
        self.was_lost = was_lost
        """Whether the session is gone, so that a new one is worth a try even in the same era."""


class Session(Protocol):
    """A way to talk to a server, once it is known how it speaks."""

    era: Era
    version: str
    server_info: dict[str, Any]
    capabilities: dict[str, Any]
    instructions: str | None

    async def request(self, ask: Ask) -> dict[str, Any]:
        """Send a request; its result, or `ServerError`."""
        ...

    async def leave(self) -> None:
        """Let go of a session that the server no longer knows; the link stays."""
        ...

    async def close(self) -> None:
        """Say goodbye, where the era has a word for it."""
        ...
