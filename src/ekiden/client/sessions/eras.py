"""Finds out which era a server speaks (basic: Versioning, and the binding pages).

`server/discover` is tried first. On HTTP the body of a refusal is read before falling back; on stdio no
answer means 2025. So does a result that names none of our versions: some servers of 2025 answer every
method with an empty result. A client that opted in to the draft tries that first. The era is remembered
for the address, so that the next client of this process does not need to find out again.
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
"""Eras by address, the oldest first; beyond `_MOST_KNOWN` the oldest are dropped."""


def known_era(origin: str | None) -> Era | None:
    """The remembered era of an address."""
    return None if origin is None else _known.get(origin)


def forget(origin: str | None) -> None:
    """Forget the era of an address: it has proved wrong."""
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
    """A session in the server's era. With `patient`, the first request may take however long it takes.

    With `draft`, the draft between the eras is offered first: it begins with the handshake of 2025.
    """
    if draft and mode == "auto":
        with contextlib.suppress(ServerError, InvalidResult, HttpRefused):
            return await _after_handshake(legacy(), None)
    if mode == "auto" and known_era(origin) == "legacy":
        try:
            return await _after_handshake(legacy(), origin)
        except (ServerError, InvalidResult, HttpRefused):
            forget(origin)  # It was upgraded, and no longer knows the handshake.
    if mode != "legacy":
        session = modern()
        if await _is_modern(session, required=mode == "modern", patient=patient):
            _remember(origin, "modern")
            return session
    # An era that was demanded is not remembered: the server may speak the other as well.
    return await _after_handshake(legacy(), origin if mode == "auto" else None)


async def _after_handshake(session: LegacySession, origin: str | None) -> LegacySession:
    """Make the handshake of 2025; the open session."""
    try:
        await session.open()
    except EraChanged as changed:
        await session.abandon()
        raise changed.refusal from None
    except (ServerError, InvalidResult):
        await session.abandon()
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
