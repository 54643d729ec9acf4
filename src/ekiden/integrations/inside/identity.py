"""Whose request it is: the identity that the host has verified, as the principal of the call."""

from typing import Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import principal_components
from mcp.server.context import ServerRequestContext

from ekiden import Principal

__all__ = ["verified_principal"]


def verified_principal(ctx: ServerRequestContext[Any, Any]) -> Principal | None:
    """Who the access token of a request was issued to; None if it came without one."""
    # Only the request that a message came with knows: a session of 2025 runs in the context of its first one.
    if ctx.request is None:
        token = get_access_token()
    else:
        user: Any = ctx.request.scope.get("user")
        token = user.access_token if isinstance(user, AuthenticatedUser) else None
    if token is None:
        return None
    client, issuer, subject = principal_components(token)
    claims = token.claims or {}
    # Some verifiers say only in the claims who it is: without that, all users of a client would be one.
    named = str(subject or claims.get("sub") or "")
    return Principal(named, issuer or "", client, frozenset(token.scopes), claims)
