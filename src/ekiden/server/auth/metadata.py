"""The server's own metadata (RFC 9728): which authorization servers issue tokens for it."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from ekiden.server.auth.dpop import PROOF_ALGORITHMS
from ekiden.transports.server.reply import JSON, Receive, Scope, Send, respond
from ekiden.wire.incoming import Incoming
from ekiden.wire.json import JsonObject, encode

__all__ = ["WELL_KNOWN", "Metadata"]

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_HEADERS: Final = (JSON, (b"cache-control", b"public, max-age=300"), (b"access-control-allow-origin", b"*"))
"""Everybody may read it, web pages too: it is what a client reads before it has a token."""


class Metadata:
    """The document, and how it is served."""

    def __init__(
        self,
        resource: str,
        issuers: Sequence[str],
        scopes: Sequence[str],
        *,
        name: str | None,
        documentation: str | None,
        needs_dpop: bool,
    ) -> None:
        parts = urlsplit(resource)
        self._suffix = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{self._suffix}"
        """Where clients find it."""
        document: JsonObject = {
            "resource": resource,
            "authorization_servers": list(issuers),
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": list(PROOF_ALGORITHMS),
        }
        if scopes:
            document["scopes_supported"] = list(scopes)
        if name is not None:
            document["resource_name"] = name
        if documentation is not None:
            document["resource_documentation"] = documentation
        if needs_dpop:
            document["dpop_bound_access_tokens_required"] = True
        self.body = encode(document)

    def paths(self, endpoint: str | None) -> set[str]:
        """Where it is served: at the root, and below it with the path of the resource and of the endpoint."""
        return {WELL_KNOWN, WELL_KNOWN + self._suffix, WELL_KNOWN + (endpoint or "")}

    async def serve(self, incoming: Incoming, receive: Receive, send: Send) -> None:
        """Answer a request for it. Implements `ekiden.transports.server.gate.Route`."""
        await self._answer(incoming.method, send)

    async def application(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The same as an ASGI application, to be mounted at `/.well-known/oauth-protected-resource`."""
        if scope["type"] == "http":
            await self._answer(scope["method"], send)

    async def _answer(self, method: str, send: Send) -> None:
        if method == "OPTIONS":
            allowed = ((b"access-control-allow-methods", b"GET"), (b"access-control-allow-headers", b"*"))
            await respond(send, 204, b"", *_HEADERS[2:], *allowed)
        elif method in ("GET", "HEAD"):
            await respond(send, 200, self.body, *_HEADERS)
        else:
            await respond(send, 405, b"", (b"allow", b"GET"))
