"""Access tokens that are JWTs (RFC 9068, and what providers issued before it): verified with public keys.

The cryptography is PyJWT's and `cryptography`'s. What is decided here: which algorithms, keys, issuers,
audiences and types of tokens count.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ekiden.errors import UsageError
from ekiden.server.auth.fetching import Fetcher, check_url
from ekiden.server.auth.jwks import KeySet, not_asymmetric
from ekiden.server.auth.token import VerifiedToken, has_plain_claims, split_scopes

if TYPE_CHECKING:
    from jwt import PyJWK

__all__ = ["ALGORITHMS", "JWTVerifier", "import_jwt"]

_log = logging.getLogger(__name__)

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""The algorithms that are allowed by default: all that have a public key."""
_TYPES: Final = ("at+jwt", "jwt")
"""What a token's `typ` may be, if it has one. An ID token, a logout token or a DPoP proof has another, or is
for another audience."""


def import_jwt() -> Any:
    """The package PyJWT; a `UsageError` that says what to install if it is not there."""
    try:
        import jwt
    except ImportError:
        raise UsageError("to verify JWTs, install PyJWT: pip install 'ekiden[auth]'") from None
    return jwt


class JWTVerifier:
    """Verifies JWTs of one issuer.

    The keys are found by the issuer's metadata, or at `jwks_uri`. `audience` is for whom tokens must have
    been issued; without it `Auth` compares that with its `resource`. `scopes` are granted to all tokens of
    this issuer, besides those that they name: the tokens of a workload (Kubernetes, SPIFFE) name none.
    `subjects` are the only ones that are accepted, if given. `types` are the values that the header `typ`
    may have.
    """

    def __init__(
        self,
        issuer: str,
        *,
        jwks_uri: str | None = None,
        audience: str | Sequence[str] | None = None,
        algorithms: Sequence[str] = ALGORITHMS,
        scopes: Iterable[str] = (),
        subjects: Iterable[str] | None = None,
        types: Sequence[str] = _TYPES,
        leeway: float = 30.0,
        keys_seconds: float = 3600.0,
        refresh_seconds: float = 30.0,
    ) -> None:
        import_jwt()
        if bad := not_asymmetric(algorithms):
            raise UsageError(f"algorithms= may only be asymmetric ones, such as RS256 and ES256, not {bad}")
        self.issuer = check_url(issuer, "issuer")
        self.audience = [audience] if isinstance(audience, str) else None if audience is None else [*audience]
        """For whom tokens must have been issued."""
        self.checks_audience = audience is not None
        self.fetcher = Fetcher()
        self._algorithms = list(algorithms)
        self._scopes = list(scopes)
        self._subjects = None if subjects is None else frozenset(subjects)
        self._types = [name.lower() for name in types]
        self._leeway = leeway
        if jwks_uri is not None:
            check_url(jwks_uri, "jwks_uri")
        self._keys = KeySet(
            issuer, jwks_uri, self.fetcher, seconds=keys_seconds, least_seconds=refresh_seconds
        )

    async def verify_token(self, token: str) -> VerifiedToken | None:
        """What the token says, if it is valid."""
        header = self._header(token)
        if header is None:
            return None
        return self._verified(token, header, await self._keys.find(header.get("kid"), header["alg"]))

    def verify_at_once(self, token: str) -> tuple[bool, VerifiedToken | None]:
        """Whether the token can be verified without asking the issuer, and what it says if it is valid."""
        header = self._header(token)
        if header is None:
            return True, None
        key = self._keys.at_hand(header.get("kid"), header["alg"])
        return (False, None) if key is None else (True, self._verified(token, header, key))

    async def close(self) -> None:
        """Close the connection to the issuer."""
        await self._keys.close()
        await self.fetcher.close()

    def _verified(self, token: str, header: Mapping[str, Any], key: "PyJWK | None") -> VerifiedToken | None:
        if key is None:
            _log_refused("its key is not known")
            return None
        claims = self._claims(token, header, key)
        if claims is None:
            return None
        subject = claims.get("sub")
        if self._subjects is not None and subject not in self._subjects:
            _log_refused("its subject is not accepted")
            return None
        client = claims.get("client_id") or claims.get("azp") or claims.get("cid") or ""
        return VerifiedToken(
            client_id=str(client),
            subject=None if subject is None else str(subject),
            scopes=[*split_scopes(claims), *self._scopes],
            expires_at=float(claims["exp"]) + self._leeway,
            resource=claims["aud"],
            claims=claims,
        )

    def _header(self, token: str) -> Mapping[str, Any] | None:
        """The header of a token that may be of the issuer; None if it is refused before any key is known."""
        jwt = import_jwt()
        try:
            header: dict[str, Any] = jwt.get_unverified_header(token)
            issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except (jwt.exceptions.PyJWTError, ValueError, TypeError, AttributeError, RecursionError):
            _log_refused("it is not a JWT")
            return None
        problem = self._problem(header, issuer)
        if problem is None and not has_plain_claims(token):
            problem = "its claims are not JSON"
        if problem is not None:
            _log_refused(problem)
            return None
        return header

    def _claims(self, token: str, header: Mapping[str, Any], key: "PyJWK") -> dict[str, Any] | None:
        jwt = import_jwt()
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[header["alg"]],
                issuer=self.issuer,
                audience=self.audience,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud"], "verify_aud": self.checks_audience},
            )
        except (jwt.exceptions.PyJWTError, ValueError, TypeError, AttributeError, OverflowError) as error:
            _log_refused(type(error).__name__)
            return None
        return claims

    def _problem(self, header: Mapping[str, Any], issuer: object) -> str | None:
        """Why a token is refused before any key is looked for."""
        if issuer != self.issuer:
            return "it is of another issuer"
        if str(header.get("typ", "jwt")).lower().removeprefix("application/") not in self._types:
            return "its type is not that of an access token"
        if header.get("alg") not in self._algorithms or not isinstance(header.get("kid"), str | None):
            return "its algorithm is not allowed"
        return None


def _log_refused(reason: str) -> None:
    """Log why a token is refused. The client learns only that it is."""
    _log.info("An access token was refused: %s", reason)
