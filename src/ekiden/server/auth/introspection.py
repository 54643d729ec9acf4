"""Access tokens that only their issuer can read: it is asked about each (RFC 7662)."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from ekiden.server.auth.fetching import Fetcher, check_url
from ekiden.server.auth.issuers import discover
from ekiden.server.auth.token import VerifiedToken, split_scopes
from ekiden.signals import VerifierUnavailable

__all__ = ["IntrospectionVerifier"]

_log = logging.getLogger(__name__)

_KINDS: Final = ("token_use", "token_type", "typ")
"""Where issuers say what a token is for."""
_OTHER_KINDS: Final = frozenset({"refresh", "refresh_token", "offline", "id", "id_token"})
"""Tokens that are good at their issuer only, and of which some say that they are active."""


class IntrospectionVerifier:
    """Asks an issuer about tokens, as the client `client_id` with `client_secret`.

    Without an `endpoint` it is found by the issuer's metadata. What the issuer says is believed for
    `cache_seconds`: so long a token that was revoked may still be used. Of a token with an open stream it is
    asked that often, too.
    """

    def __init__(
        self,
        issuer: str,
        *,
        client_id: str,
        client_secret: str,
        endpoint: str | None = None,
        cache_seconds: float = 30.0,
    ) -> None:
        self.issuer = check_url(issuer, "issuer")
        self.cache_seconds = cache_seconds
        self.fetcher = Fetcher(keeps=True)
        self._endpoint = None if endpoint is None else check_url(endpoint, "endpoint")
        self._credentials = (client_id, client_secret)

    async def verify_token(self, token: str) -> VerifiedToken | None:
        """What the issuer says about the token, if it is active."""
        endpoint = self._endpoint or await self._discovered()
        form = {"token": token, "token_type_hint": "access_token"}
        said = await self.fetcher.post(endpoint, form, self._credentials)
        if said.get("active") is not True:
            _log.info("An access token was refused: its issuer says that it is not active")
            return None
        if said.get("iss", self.issuer) != self.issuer:
            _log.info("An access token was refused: it is of another issuer")
            return None
        if (problem := _problem(said)) is not None:
            _log.info("An access token was refused: %s", problem)
            return None
        expires = said.get("exp")
        claims: dict[str, Any] = {"iss": self.issuer, **said}
        return VerifiedToken(
            client_id=str(said.get("client_id") or ""),
            subject=None if said.get("sub") is None else str(said["sub"]),
            scopes=split_scopes(said),
            expires_at=None if expires is None else float(expires),
            resource=said.get("aud"),
            claims=claims,
        )

    async def _discovered(self) -> str:
        found = (await discover(self.issuer, self.fetcher)).get("introspection_endpoint")
        if not isinstance(found, str):
            raise VerifierUnavailable(f"the metadata of {self.issuer} has no introspection_endpoint")
        self._endpoint = check_url(found, "introspection_endpoint")
        return self._endpoint


def _problem(said: Mapping[str, Any]) -> str | None:
    """Why what an issuer says cannot be the description of an access token."""
    if any(str(said.get(name)).lower() in _OTHER_KINDS for name in _KINDS):
        return "it is not an access token, but of another kind"
    # Not bool: `True` is not a subject.
    if any(type(said.get(name)) not in (str, int, type(None)) for name in ("sub", "client_id")):
        return "its subject or client is not a name"
    if type(said.get("exp")) not in (int, float, type(None)):
        return "when it expires is not a number"
    return None
