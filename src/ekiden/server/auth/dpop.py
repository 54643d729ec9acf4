"""DPoP (RFC 9449, SEP-1932): proof that who sends a token has the key that the token is bound to.

A stolen token is of no use without the key. Each request has a proof of its own, for its method, its URL and
its token, made within the last minutes. A proof is accepted once by each process (`used`).
"""

import base64
import hashlib
import hmac
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from ekiden.server.auth.jwt import import_jwt
from ekiden.server.auth.token import has_plain_claims
from ekiden.server.auth.used import UsedProofs
from ekiden.wire.json import encode, is_object

__all__ = ["PROOF_ALGORITHMS", "Proofs"]

_log = logging.getLogger(__name__)

PROOF_ALGORITHMS: Final = ("ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256")
"""How a proof may be signed."""
_WINDOW: Final = 300.0
"""Seconds around now in which a proof must have been made: what SEP-1932 wants, for clocks that differ."""
_MOST_REMEMBERED: Final = 100_000
"""Proofs that are remembered, each with some 200 bytes."""
_LONGEST: Final = 8 * 1024
_THUMBPRINT: Final = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}
"""The members of a key that count for its thumbprint, in their order (RFC 7638, RFC 8037)."""
_BROKEN: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What values of the wrong kind in a proof may raise."""
_RSA_BITS: Final = range(2048, 4096 + 1)
_MOST_EXPONENT_BITS: Final = 32
"""The exponent of nearly all keys is 65537."""
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class Proofs:
    """Checks the proofs of requests for one resource."""

    def __init__(self, resource: str) -> None:
        self._url = _comparable(resource)
        self._used = UsedProofs(_MOST_REMEMBERED, _WINDOW)

    def problem(
        self, proof: bytes, token: str, bound_to: str, method: str, now: float, *, owner: str = ""
    ) -> str | None:
        """Why a proof does not prove that the sender has the token's key; None if it does.

        `owner` is who has the token: the memory of used proofs is shared fairly among them.
        """
        if len(proof) > _LONGEST:
            return "the proof is too long"
        jwt = import_jwt()
        text = proof.decode("latin-1").strip()
        try:
            header: dict[str, Any] = jwt.get_unverified_header(text)
            key = header.get("jwk")
            if header.get("typ") != "dpop+jwt" or header.get("alg") not in PROOF_ALGORITHMS:
                return "the proof has another type, or an algorithm that is not allowed"
            if not is_object(key) or not _PRIVATE.isdisjoint(key):
                return "the proof has no public key"
            if not hmac.compare_digest(thumbprint(key).encode(), bound_to.encode()):
                return "the proof is of another key than the token's"
            if not has_plain_claims(text):
                return "the claims of the proof are not JSON"
            public = jwt.PyJWK(key, header["alg"])
            if not _is_cheap(public.key):
                return "the key of the proof is too small, or takes too long"
            options = {"verify_aud": False, "verify_exp": False, "verify_nbf": False, "verify_iat": False}
            claims: dict[str, Any] = jwt.decode(
                text,
                public.key,
                algorithms=[header["alg"]],
                options={**options, "require": ["jti", "htm", "htu", "iat", "ath"]},
            )
        except (jwt.exceptions.PyJWTError, *_BROKEN) as error:
            return f"the proof is not valid: {type(error).__name__}"
        problem = self._claims_problem(claims, token, method, now)
        if problem is not None:
            return problem
        # By its key and its id: ids of others do not count.
        name = hashlib.sha256(f"{bound_to} {claims['jti']}".encode()).digest()
        is_new = self._used.take(owner, name, float(claims["iat"]), now)
        return None if is_new else "the proof was used before"

    def _claims_problem(self, claims: Mapping[str, Any], token: str, method: str, now: float) -> str | None:
        made = claims["iat"]
        if type(made) not in (int, float) or abs(now - made) > _WINDOW:
            return "the proof was not made just now"
        if claims["htm"] != method:
            return "the proof is for another method"
        if not isinstance(claims["htu"], str) or _comparable(claims["htu"]) != self._url:
            return "the proof is for another URL"
        digest = _base64url(hashlib.sha256(token.encode()).digest())
        if not isinstance(claims["ath"], str) or not hmac.compare_digest(
            claims["ath"].encode(), digest.encode()
        ):
            return "the proof is for another token"
        if not isinstance(claims["jti"], str) or not claims["jti"]:
            return "the proof has no id"
        return None


def _is_cheap(key: Any) -> bool:
    """Whether a signature of this key can be verified for every request. Clients make their keys themselves.

    RSA with an exponent as long as its modulus takes fifty times as long as with the usual one.
    """
    numbers = getattr(key, "public_numbers", None)
    exponent: int | None = None if numbers is None else getattr(numbers(), "e", None)
    if exponent is None:
        return True  # Not RSA: its size is fixed by its algorithm.
    return exponent.bit_length() <= _MOST_EXPONENT_BITS and key.key_size in _RSA_BITS


def thumbprint(key: Mapping[str, Any]) -> str:
    """The thumbprint of a public key (RFC 7638)."""
    members: Sequence[str] = _THUMBPRINT.get(str(key.get("kty")), ())
    return _base64url(hashlib.sha256(encode({name: key.get(name) for name in members})).digest())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _comparable(url: str) -> str:
    """A URL without query and fragment, with scheme and host in lower case, and without a default port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    default = {"https": 443, "http": 80}.get(parts.scheme)
    host = (parts.hostname or "") + ("" if port in (None, default) else f":{port}")
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
