"""Whose request it is: the identity that the host has verified, as the principal of the call."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.context import ServerRequestContext

from ekiden import Principal
from ekiden.engine import Lasting, lasting

__all__ = ["Verify", "lasting_of", "verified_principal"]

Verify: TypeAlias = Callable[[str], Awaitable[AccessToken | None]]
"""Verifies a token as the host does."""


def verified_principal(ctx: ServerRequestContext[Any, Any]) -> Principal | None:
    """Who the access token of a request was issued to; None if it came without one."""
    token = _token_of(ctx)
    return None if token is None else _principal_of(token)


def lasting_of(ctx: ServerRequestContext[Any, Any], verify: Verify | None) -> Lasting | None:
    """What ends a subscription with the access token of its request; None if it came without one."""
    token = _token_of(ctx)
    if token is None:
        return None
    text = token.token

    async def again() -> tuple[Principal, float | None] | None:
        found = None if verify is None else await verify(text)
        return None if found is None else (_principal_of(found), found.expires_at)

    return lasting(_principal_of(token), token.expires_at, None if verify is None else again)


def _token_of(ctx: ServerRequestContext[Any, Any]) -> AccessToken | None:
    # Only the request that a message came with knows: a session of 2025 runs in the context of its first one.
    if ctx.request is None:
        return get_access_token()
    user: Any = ctx.request.scope.get("user")
    return user.access_token if isinstance(user, AuthenticatedUser) else None


def _principal_of(token: AccessToken) -> Principal:
    client, issuer, subject = principal_components(token)
    claims = token.claims or {}
    # Some verifiers say only in the claims who it is: without that, all users of a client would be one.
    named = str(subject or claims.get("sub") or "")
    return Principal(named, issuer or "", client, frozenset(token.scopes), claims)
