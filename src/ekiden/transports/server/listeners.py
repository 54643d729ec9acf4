"""Listens more than once on the same sockets, where the event loop accepts one connection at a time.

uvloop accepts one connection of a listener in each pass. Where passes take long, because each new connection
brings a call that takes long, whoever connects behind a hundred others would wait for a hundred passes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

__all__ = ["listening_often"]

_AT_ONCE: Final = 16
"""Connections that are accepted in one pass. For every one, each of as many listeners looks once."""


class _Listeners:
    """Several servers of the event loop as one."""

    def __init__(self, servers: Sequence[asyncio.Server]) -> None:
        self.sockets = servers[0].sockets
        self._servers = servers

    def close(self) -> None:
        """Accept no more."""
        for server in self._servers:
            server.close()

    async def wait_closed(self) -> None:
        """Wait until nothing is accepted any more."""
        for server in self._servers:
            await server.wait_closed()


async def listening_often(
    server: asyncio.Server, listen: Callable[..., Awaitable[asyncio.Server]]
) -> asyncio.Server:
    """A server that accepts many connections in one pass of the event loop. `listen` makes more of its kind,
    given `sock`; they share the sockets of the first."""
    if not type(server).__module__.startswith("uvloop"):
        return server  # The event loop of Python accepts as many as may wait.
    shared: list[Any] = [each for each in server.sockets for _ in range(_AT_ONCE - 1)]
    more = [await listen(sock=each.dup()) for each in shared]
    return cast("asyncio.Server", _Listeners([server, *more]))
