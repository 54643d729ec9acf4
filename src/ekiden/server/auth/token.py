"""What a verifier says about an access token, and what a verifier is."""

import base64
import logging
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from ekiden.errors import ProtocolError
from ekiden.wire.json import decode, is_array, is_object
from ekiden.wire.principal import Principal

__all__ = [
    "TokenVerifier",
    "VerifiedToken",
    "audiences_of",
    "binding_problem",
    "has_plain_claims",
    "key_of",
    "principal_of",
    "split_scopes",
]

_log = logging.getLogger(__name__)


class VerifiedToken(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a valid access token. The fields are those of the official SDK's `AccessToken`."""

    client_id: str = ""
    subject: str | None = None
    scopes: list[str] = []
    expires_at: float | None = None
    resource: str | list[str] | None = None
    """For whom the token was issued."""
    claims: Mapping[str, Any] = {}


class TokenVerifier(Protocol):
    """Anything that verifies tokens, such as the verifiers of the official SDK and of FastMCP.

    What it says is believed for `cache_seconds`, if it has that attribute, and for 300 s at most; then it is
    asked again, also about tokens of open streams. With `holds_until_expiry = True` such streams last until
    the token expires.
    """

    async def verify_token(self, token: str) -> Any:
        """What is known about a valid token (`VerifiedToken` or `AccessToken`); None if it is not valid."""
        ...


def principal_of(found: Any) -> Principal | None:
    """The principal that a verified token stands for; None if the token names neither subject nor client."""
    claims = _claims(found)
    client = str(getattr(found, "client_id", "") or "")
    subject = getattr(found, "subject", None) or claims.get("sub") or client
    if not subject:
        _log.info("An access token was refused: it names neither a subject nor a client")
        return None
    issuer = claims.get("iss")
    scopes = frozenset(getattr(found, "scopes", None) or ())
    return Principal(str(subject), "" if issuer is None else str(issuer), client, scopes, claims)


def _claims(found: Any) -> Mapping[str, Any]:
    claims: Mapping[str, Any] | None = getattr(found, "claims", None)
    return claims or {}


def audiences_of(found: Any) -> list[str]:
    """For whom a verified token was issued, as far as its verifier tells."""
    named: object = getattr(found, "resource", None)
    if named is None:
        named = _claims(found).get("aud")
    if is_array(named):
        return [str(each) for each in named]
    return [] if named is None else [str(named)]


def key_of(found: Any) -> str | None:
    """The thumbprint of the key that a token is bound to (`cnf.jkt`, RFC 9449), if it is bound to one."""
    confirmation: object = _claims(found).get("cnf")
    bound = confirmation.get("jkt") if is_object(confirmation) else None
    return None if bound is None else str(bound)


def binding_problem(found: Any) -> str | None:
    """Why a token that is bound to something cannot be taken; None if it is bound to a key, or to nothing.

    Such a token is of use only to whoever has what it is bound to, for example a certificate of TLS (RFC
    8705). That is not checked here, and without that it must not count.
    """
    confirmation: object = _claims(found).get("cnf")
    if confirmation is None or (is_object(confirmation) and isinstance(confirmation.get("jkt"), str)):
        return None
    return "it is bound to something else than a DPoP key, which is not checked here"


def split_scopes(claims: Mapping[str, Any]) -> list[str]:
    """The scopes of a token: `scope` as text (RFC 9068), or `scp` as text or a list, as some have it."""
    for name in ("scope", "scp"):
        value: object = claims.get(name)
        if isinstance(value, str):
            return value.split()
        if is_array(value):
            return [each for each in value if isinstance(each, str)]
    return []


def has_plain_claims(token: str) -> bool:
    """Whether the claims of a JWT are JSON as the standard has it.

    PyJWT reads more than that: NaN, which is neither before nor after any time, integers that no clock has,
    and halves of characters, which cannot be written down again.
    """
    try:
        spelled = token.split(".")[1].encode()
        return is_object(decode(base64.urlsafe_b64decode(spelled + b"=" * (-len(spelled) % 4))))
    except (ProtocolError, ValueError, IndexError):
        return False
