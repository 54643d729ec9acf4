"""The way back to a client through a host: notifications, and questions to clients of 2025."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from ekiden.errors import CannotAsk
from ekiden.server.legacy.session import AskingStream
from ekiden.signals import Unsayable
from ekiden.transports.server.port import Stream
from ekiden.wire import versions
from ekiden.wire.json import Raw, copied
from ekiden.wire.legacy import Legacy
from ekiden.wire.modern import Request

__all__ = ["AskingStream", "HostStream", "Notify", "Push", "Stream"]

Notify: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Sends a notification that belongs to the request: its method and parameters."""
Push: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Sends a request to the client, and returns the result. Raises `CannotAsk` if none comes."""

ASK_SECONDS: Final = 600.0
"""How long a client may take to answer a question: a user reads, thinks and clicks."""


class HostStream:
    """Implements `AskingStream` with two functions of the host. Without `push` no question can be asked."""

    def __init__(
        self,
        request: Request,
        notify: Notify | None,
        push: Push | None = None,
        *,
        seconds: float = ASK_SECONDS,
    ) -> None:
        self._version = request.meta.protocol_version
        self._notify = notify
        self._push = push
        self._seconds = seconds
        self.open = True
        """Whether the request still runs. Later, messages of tasks that its handler started are dropped."""

    @property
    def can_notify(self) -> bool:
        """Whether the client takes notifications at all."""
        return self.open and self._notify is not None

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification that belongs to the request."""
        if self.open and self._notify is not None:
            if any(isinstance(value, Raw) for value in params.values()):
                params = copied(params)  # The state of a task, which others are sent, too.
            await self._notify(method, params)
        else:
            await asyncio.sleep(0)  # Without a wait a handler that only notifies could not be cancelled.

    async def ask(self, method: str, params: Mapping[str, Any] | None, elicitation_id: str) -> Any:
        """Send a question to a client of 2025, in the words of its version."""
        if not self.open:
            raise CannotAsk("The call has ended, so its client cannot be asked any more")
        if self._push is None:
            raise CannotAsk(
                "This needs an answer from the client, but it has no session in which it could be asked: "
                f"use a client of {versions.MODERN}, or have the server keep sessions"
            )
        try:
            spelled = Legacy(self._version).question(method, params, elicitation_id)
        except Unsayable as problem:
            raise CannotAsk(f"This cannot be asked of a client of {self._version}: {problem}") from None
        try:
            async with asyncio.timeout(self._seconds):
                return await self._push(method, spelled)
        except TimeoutError:
            raise CannotAsk(f"The client did not answer {method} within {self._seconds:g} seconds") from None
