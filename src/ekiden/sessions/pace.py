"""How often each client may have other processes told of something: beyond it, it waits.

A bus has room for some messages. If one client could fill it, all processes would be told that they have
missed something, and would look up all sessions of all clients.
"""

import asyncio
from typing import Final

__all__ = ["Pace"]

_EVERY_SECONDS: Final = 1 / 200
_AT_ONCE: Final = 100
"""As many as one batch has may come without a wait."""
_MOST_KNOWN: Final = 1000
"""Clients that are remembered before those are forgotten that have nothing to wait for."""


class Pace:
    """Counts the messages of each client."""

    def __init__(self) -> None:
        self._free_at: dict[str, float] = {}
        """When all that a client has sent is spread over time."""

    async def turn(self, client: str) -> None:
        """Wait until a client may send one more. All that wait go on in their order."""
        now = asyncio.get_running_loop().time()
        if len(self._free_at) > _MOST_KNOWN:
            self._free_at = {each: free for each, free in self._free_at.items() if free > now}
        free = self._free_at[client] = max(self._free_at.get(client, now), now) + _EVERY_SECONDS
        if (early := free - now - _AT_ONCE * _EVERY_SECONDS) > 0:
            await asyncio.sleep(early)
