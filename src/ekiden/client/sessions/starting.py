"""The first messages to a server that this client has started: which era it speaks.

A server of 2025 may stay silent on `server/discover`, and one that is still being downloaded by `npx` is
silent too. What is written to its input meanwhile waits there, and is read in order:

1. `server/discover`. Its answer decides, however late it comes.
2. After `_PROBE_SECONDS`, a `ping` that names the modern version: servers of 2025 answer it before the
   handshake, and others refuse it. An answer to this one alone means 2025.
3. After `_SILENT_SECONDS` more, `initialize`: some servers of 2025 answer nothing else. It selects the older
   era, so that it is the last resort; a server that refuses it has still answered the first message.

Nothing here ends the wait: whoever connects limits it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from ekiden.client.sessions.legacy import LegacySession
from ekiden.client.sessions.modern import ModernSession
from ekiden.client.sessions.session import ClientRequest, ClientSession
from ekiden.errors import InvalidResult, ServerError
from ekiden.wire.json import JsonObject

__all__ = ["await_start"]

Judge: TypeAlias = Callable[[Awaitable[JsonObject]], Awaitable[bool]]
"""Says whether an answer to `server/discover` is one of a modern server."""

_PROBE_SECONDS: Final = 5.0
"""How long a server may take to answer the first message before it is asked whether it is there."""
_SILENT_SECONDS: Final = 5.0
"""How long it may then be silent before the handshake of 2025 is tried."""
_TURN_SECONDS: Final = 1.0
"""How long to wait for one answer when a later message was answered already: servers answer in any order."""


async def await_start(modern: ModernSession, legacy: LegacySession, is_modern: Judge) -> ClientSession:
    """The session of whichever era the server turns out to speak."""
    probe = asyncio.create_task(modern.discover())
    begun: list[asyncio.Task[Any]] = [probe]
    try:
        if not await _ends(probe, _PROBE_SECONDS):
            ping = asyncio.create_task(modern.request(ClientRequest("ping", {})))
            begun.append(ping)
            await _is_there(probe, ping)
        if probe.done():
            if await is_modern(probe):
                return modern
            await legacy.open()
            return legacy
        greeting = asyncio.create_task(legacy.greet())
        begun.append(greeting)
        if not await _welcomes(greeting, probe, is_modern):
            return modern
        await legacy.begin()
        return legacy
    finally:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


async def _is_there(probe: asyncio.Task[JsonObject], ping: asyncio.Task[JsonObject]) -> None:
    """Return when the server has answered the probe, or is known not to, or has been silent for long."""
    await asyncio.wait({probe, ping}, timeout=_SILENT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if not probe.done() and ping.done():
        with contextlib.suppress(ServerError):
            await ping
        await _ends(probe, _TURN_SECONDS)


async def _welcomes(greeting: asyncio.Task[None], probe: asyncio.Task[JsonObject], is_modern: Judge) -> bool:
    """Whether the server accepts the handshake. If it refuses it, its answer to the probe must be modern."""
    await asyncio.wait({greeting, probe}, return_when=asyncio.FIRST_COMPLETED)
    if not greeting.done() and await is_modern(probe) and not await _ends(greeting, _TURN_SECONDS):
        return False
    try:
        await greeting
    except (ServerError, InvalidResult):
        if not await _ends(probe, _TURN_SECONDS) or not await is_modern(probe):
            raise
        return False
    return True


async def _ends(task: asyncio.Task[Any], seconds: float) -> bool:
    """Whether a task ends in time; it goes on if it does not."""
    await asyncio.wait({task}, timeout=seconds)
    return task.done()
