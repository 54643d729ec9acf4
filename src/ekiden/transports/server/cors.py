"""CORS: how a browser learns that pages of an allowed origin may call this server, and read its answers.

Only for origins that the operator has named. No cookies are involved: a page sends its access token itself,
so that a response never allows credentials.
"""

from typing import Final

from ekiden.transports.server.reply import Event, Receive, Send, respond
from ekiden.wire.headers import Headers
from ekiden.wire.incoming import Incoming, Refusal

__all__ = ["Cors", "is_preflight"]

_ORIGIN: Final = b"origin"
_WISHED_METHOD: Final = b"access-control-request-method"
_WISHED_HEADERS: Final = b"access-control-request-headers"
_ALLOW_ORIGIN: Final = b"access-control-allow-origin"

_METHODS: Final = b"GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"
_HEADERS: Final = frozenset(
    {
        *(b"accept", b"authorization", b"content-type", b"dpop", b"last-event-id"),
        *(b"mcp-protocol-version", b"mcp-session-id", b"mcp-method", b"mcp-name"),
        *(b"traceparent", b"tracestate", b"baggage"),
    }
)
"""Headers that pages may send. Those of parameters (`Mcp-Param-*`) have names that tools give them."""
_PARAM: Final = b"mcp-param-"
_EXPOSED: Final = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"
"""Headers that pages may read, beside those that they always may."""
_MAX_AGE: Final = b"7200"
"""Seconds for which a browser remembers a preflight. Chromium takes no more than two hours."""
_MOST_WISHED: Final = 100
"""Headers of a preflight that are looked at."""


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks if it may send the real request."""
    return method == "OPTIONS" and _WISHED_METHOD in headers and _ORIGIN in headers


class Cors:
    """Adds what a browser wants to know. Origins were checked before; `any_origin`: all are allowed."""

    def __init__(self, *, any_origin: bool) -> None:
        self._any = any_origin

    def headers(self, origin: bytes) -> tuple[tuple[bytes, bytes], ...]:
        """What every response to a page of this origin has."""
        allowed = b"*" if self._any else origin
        return (_ALLOW_ORIGIN, allowed), (b"vary", b"Origin"), (b"access-control-expose-headers", _EXPOSED)

    def readable(self, refusal: Refusal, origin: bytes) -> Refusal:
        """A refusal that a page of this origin can read."""
        return refusal._replace(headers=(*refusal.headers, *self.headers(origin)))

    def send(self, send: Send, origin: bytes) -> Send:
        """Add the headers to whatever response is sent."""

        async def sending(event: Event) -> None:
            if event["type"] == "http.response.start":
                given = list(event["headers"])
                if all(name.lower() != _ALLOW_ORIGIN for name, _ in given):
                    event = {**event, "headers": [*given, *self.headers(origin)]}
            await send(event)

        return sending

    async def preflight(self, incoming: Incoming, receive: Receive, send: Send) -> None:
        """Answer a browser's question: which methods and headers it may send."""
        wished = incoming.headers.get(_WISHED_HEADERS, b"").split(b",")[:_MOST_WISHED]
        allowed = [name for each in wished if _is_allowed(name := each.strip().lower())]
        more = [(b"access-control-allow-headers", b", ".join(allowed))] if allowed else []
        await respond(
            send,
            204,
            b"",
            *self.headers(incoming.headers[_ORIGIN])[:1],
            (b"vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-max-age", _MAX_AGE),
            *more,
        )


def _is_allowed(name: bytes) -> bool:
    if name.startswith(_PARAM):
        return name.translate(None, b"-_").isalnum()
    return name in _HEADERS
