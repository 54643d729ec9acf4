"""Which era does a server speak? (basic: Versioning, and the binding pages.)

On HTTP a modern request is tried first, and the body of a refusal is read before falling back. On
stdio `server/discover` is the probe, and silence counts as a no. So does a result that names no
version of ours: some servers of 2025 answer anything with an empty one. What was found is remembered
for the origin, so that the next client of this process does not ask again.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from ekiden.client.sessions.legacy import LegacySession
from ekiden.client.sessions.modern import MODERN_ERRORS, ModernSession
from ekiden.client.sessions.session import ClientSession, Era
from ekiden.errors import EraChanged, HttpRefused, InvalidResult, ServerError
from ekiden.wire import versions
from ekiden.wire.json import is_array

__all__ = ["find_session", "forget", "known_era"]

_PROBE_SECONDS: Final = 5.0
"""How long a server on stdio may take to answer the probe. One of 2025 may not answer it at all."""

_MOST_KNOWN: Final = 1000
_known: dict[str, Era] = {}
"""Eras by origin, the oldest first: of a process that talks to ever new servers, the last ones are known."""


def known_era(origin: str | None) -> Era | None:
    """What is remembered of an origin."""
    return None if origin is None else _known.get(origin)


def forget(origin: str | None) -> None:
    """The memory of an origin has proved wrong."""
    if origin is not None:
        _known.pop(origin, None)


async def find_session(
    modern: Callable[[], ModernSession],
    legacy: Callable[[], LegacySession],
    *,
    origin: str | None,
    mode: str,
    patient: bool,
    draft: bool = False,
) -> ClientSession:
    """A session in the era that the server speaks. `patient` waits for the probe however long it takes.

    With `draft`, a draft between the eras is offered first: it begins with the old handshake.
    """
    if draft and mode == "auto":
        with contextlib.suppress(ServerError, InvalidResult, HttpRefused):
            return await _shaken(legacy(), None)
    if mode == "auto" and known_era(origin) == "legacy":
        try:
            return await _shaken(legacy(), origin)
        except (ServerError, InvalidResult, HttpRefused):
            forget(origin)  # It was upgraded since, and no longer knows the handshake.
    if mode != "legacy":
        session = modern()
        if await _is_modern(session, required=mode == "modern", patient=patient):
            _remember(origin, "modern")
            return session
    # What was demanded says nothing about the server.
    return await _shaken(legacy(), origin if mode == "auto" else None)


async def _shaken(session: LegacySession, origin: str | None) -> LegacySession:
    """A session of 2025, after its handshake."""
    try:
        await session.open()
    except EraChanged as changed:
        await session.leave()
        raise changed.refusal from None
    except (ServerError, InvalidResult):
        await session.leave()
        raise
    _remember(origin, "legacy")
    return session


async def _is_modern(session: ModernSession, *, required: bool, patient: bool) -> bool:
    try:
        async with asyncio.timeout(None if patient or required else _PROBE_SECONDS):
            result = await session.discover()
    except ServerError as error:
        if error.code in MODERN_ERRORS or required:
            raise
        return False
    except EraChanged as changed:
        if required:
            raise changed.refusal from None
        return False
    except TimeoutError:
        return False
    supported = result.get("supportedVersions")
    speaks = is_array(supported) and versions.MODERN in supported
    if required and not speaks:
        raise InvalidResult(f"The server does not say that it speaks version {versions.MODERN}")
    return speaks


def _remember(origin: str | None, era: Era) -> None:
    if origin is not None:
        _known.pop(origin, None)
        _known[origin] = era
        if len(_known) > _MOST_KNOWN:
            del _known[next(iter(_known))]
