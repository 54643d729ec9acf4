"""Tokens that are written down: for tests, and for trying out a server on one's own machine."""

import hashlib
from collections.abc import Mapping

from ekiden.errors import UsageError
from ekiden.server.auth.token import VerifiedToken
from ekiden.wire.principal import Principal

__all__ = ["StaticTokens"]


class StaticTokens:
    """Accepts exactly these tokens, each for its principal, for as long as the server runs."""

    checks_audience = True
    """They are this server's own: no other server knows them."""

    def __init__(self, tokens: Mapping[str, Principal]) -> None:
        if not tokens or not all(tokens):
            raise UsageError("StaticTokens needs at least one token, and none may be empty")
        # By digest: how long a look-up takes tells nothing about the tokens then.
        self._known = {_digest(token): principal for token, principal in tokens.items()}

    async def verify_token(self, token: str) -> VerifiedToken | None:
        """What was written down about the token."""
        principal = self._known.get(_digest(token))
        if principal is None:
            return None
        return VerifiedToken(
            client_id=principal.client,
            subject=principal.subject,
            scopes=sorted(principal.scopes),
            claims={"iss": principal.issuer, **principal.claims} if principal.issuer else principal.claims,
        )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
