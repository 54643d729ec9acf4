"""Tokens that were verified a moment ago. They are known by a digest: no token lies in memory for long."""

import hashlib
from collections import OrderedDict
from typing import Final

import msgspec

from ekiden.wire.principal import Principal

__all__ = ["Known", "KnownTokens", "digest_of"]

_MOST: Final = 10_000
"""Tokens that are remembered; then those that were verified first are forgotten. Each is a few KB."""


class Known(msgspec.Struct, frozen=True):
    """What was found out about a token."""

    principal: Principal
    expires: float
    """When the token itself expires."""
    again: float
    """When it is to be verified again."""
    key: str | None
    """The thumbprint of the key that the token is bound to."""


class KnownTokens:
    """Remembers verified tokens."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Known] = OrderedDict()

    def get(self, digest: bytes, now: float) -> Known | None:
        """What is known about a token; None if it is to be verified."""
        known = self._known.get(digest)
        if known is None:
            return None
        if now >= known.again or now >= known.expires:
            del self._known[digest]
            return None
        return known

    def put(self, digest: bytes, known: Known) -> None:
        """Remember a token."""
        self._known[digest] = known
        if len(self._known) > _MOST:
            self._known.popitem(last=False)

    def __len__(self) -> int:
        return len(self._known)


def digest_of(token: bytes) -> bytes:
    """What a token is known by."""
    return hashlib.sha256(token).digest()
