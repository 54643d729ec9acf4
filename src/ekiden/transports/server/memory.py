"""A server in the same process: messages as bytes, nothing in between. For tests and embedding."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from ekiden.transports.server.conversation import Conversation
from ekiden.transports.server.port import Endpoint
from ekiden.wire.json import decode, encode
from ekiden.wire.principal import Principal

__all__ = ["MemoryChannel", "connect"]

_BUFFERED: Final = 256
"""Messages that may wait for a reader; then the server waits, as it would on a socket."""


class MemoryChannel:
    """One client's end of a conversation: send messages, receive messages."""

    def __init__(self, endpoint: Endpoint, principal: Principal | None = None) -> None:
        self._received: asyncio.Queue[bytes] = asyncio.Queue(_BUFFERED)
        self._conversation = Conversation(endpoint, self._received.put, principal)

    async def send(self, message: dict[str, Any] | bytes) -> None:
        """Send one message to the server."""
        await self._conversation.receive(message if isinstance(message, bytes) else encode(message))

    async def receive(self) -> dict[str, Any]:
        """The next message from the server."""
        message: dict[str, Any] = decode(await self.receive_bytes())
        return message

    async def receive_bytes(self) -> bytes:
        """The next message from the server, as it was sent."""
        return await self._received.get()

    async def close(self) -> None:
        """Leave: what is still running is cancelled."""
        await self._conversation.close(0.0)


@asynccontextmanager
async def connect(
    endpoint: Endpoint, principal: Principal | None = None
) -> AsyncGenerator[MemoryChannel, None]:
    """A channel to a started server; the channel ends with the block, the server with its last user."""
    async with endpoint.in_use():
        channel = MemoryChannel(endpoint, principal)
        try:
            yield channel
        finally:
            await channel.close()
