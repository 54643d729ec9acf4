"""Finds out which era a server speaks (basic: Versioning, and the binding pages).

`server/discover` is tried first. On HTTP the body of a refusal is read before falling back; on stdio a
server may also be silent, or slow to start (`ekiden.client.sessions.starting`). A refusal means 2025. So
does a result that names none of our versions: some servers of 2025 answer every method with an empty
result. A client that opted in to the draft offers it in the handshake, and makes one with a modern server
that lists the draft. The era is remembered for the address, so that the next client of this process does
not need to find out again.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from ekiden.client.sessions.legacy import LegacySession
from ekiden.client.sessions.modern import MODERN_ERRORS, ModernSession
from ekiden.client.sessions.session import ClientSession, Era
from ekiden.client.sessions.starting import await_start
from ekiden.errors import HttpRefused, InvalidResult, ServerError
from ekiden.signals import EraChanged
from ekiden.wire import versions
from ekiden.wire.json import JsonObject, is_array

__all__ = ["find_session", "forget", "known_era"]

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
    """A session in the server's era. Without `patient`, no answer to the first request is an answer too.

    With `draft`, a server of both eras is asked for the draft between them, if it says that it speaks it.
    """
    found = await _find(modern, legacy, origin=origin, mode=mode, patient=patient)
    if draft and mode == "auto" and isinstance(found, ModernSession) and found.offers_draft:
        with contextlib.suppress(ServerError, InvalidResult, HttpRefused):
            return await _after_handshake(legacy(), None)
    return found


async def _find(
    modern: Callable[[], ModernSession],
    legacy: Callable[[], LegacySession],
    *,
    origin: str | None,
    mode: str,
    patient: bool,
) -> ClientSession:
    if mode == "auto" and known_era(origin) == "legacy":
        try:
            return await _after_handshake(legacy(), origin)
        except (ServerError, InvalidResult, HttpRefused):
            forget(origin)  # It was upgraded, and no longer knows the handshake.
    if mode != "legacy":
        session = modern()
        if mode == "auto" and not patient:
            return await await_start(session, legacy(), _is_modern)
        if await _is_modern(session.discover(), required=mode == "modern"):
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


async def _is_modern(discovering: Awaitable[JsonObject], *, required: bool = False) -> bool:
    """Whether the answer to `server/discover` is one of a modern server."""
    try:
        result = await discovering
    except ServerError as error:
        if error.code in MODERN_ERRORS or required:
            raise
        return False
    except EraChanged as changed:
        if required:
            raise changed.refusal from None
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
