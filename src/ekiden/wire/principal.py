"""Who sent a message, as a token that was verified says. No tokens here, and no keys."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from ekiden.errors import InsufficientScope
from ekiden.wire.json import encode

__all__ = ["Principal", "grants", "is_scope", "require"]

_NO_CLAIMS: Mapping[str, Any] = {}
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


class Principal(msgspec.Struct, frozen=True):
    """A verified identity: `subject` of `issuer`, through `client`, with `scopes`.

    Two tokens of the same subject, issuer and client are the same principal, whatever their scopes are and
    whenever they expire: `id` says which principal it is.
    """

    subject: str
    issuer: str = ""
    client: str = ""
    """The OAuth client that the token was issued to."""
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = _NO_CLAIMS
    """All that the token, or the introspection of it, says."""

    @property
    def id(self) -> str:
        """What belongs to this principal is bound to this text: issuer, subject and client."""
        return encode([self.issuer, self.subject, self.client]).decode()

    def has(self, *scopes: str) -> bool:
        """Whether all of these scopes were granted."""
        return self.scopes.issuperset(scopes)


def grants(principal: Principal | None, scopes: Collection[str]) -> bool:
    """Whether a caller has all of these scopes. Who is not known has none."""
    return not scopes or (principal is not None and principal.scopes.issuperset(scopes))


def require(principal: Principal | None, scopes: Collection[str]) -> None:
    """Refuse a caller who does not have all of these scopes."""
    if not grants(principal, scopes):
        raise InsufficientScope(sorted(scopes))


def is_scope(text: str) -> bool:
    """Whether a text can be a scope (RFC 6749, 3.3): others would break out of the header that names it."""
    return _SCOPE.fullmatch(text) is not None
