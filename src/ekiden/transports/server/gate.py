"""The gate: what is decided about an HTTP request by its head, before its body is read.

Every request of both eras passes it, on our own connections and where the server is mounted. In this order:
the size of the body, Host, Origin, the path, then the doorkeeper (who sends this?), then the method and the
media type. A path that is not the endpoint's may have a route of its own.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeAlias

from ekiden.transports.server.cors import Cors, is_preflight
from ekiden.transports.server.guard import Guard
from ekiden.transports.server.proxies import TrustedProxies
from ekiden.transports.server.reply import Receive, Send
from ekiden.wire.headers import Headers
from ekiden.wire.incoming import PENDING, ROUTED, Incoming, Refusal

__all__ = ["Doorkeeper", "Gate", "Route", "Routes"]

Route: TypeAlias = Callable[[Incoming, Receive, Send], Awaitable[None]]
"""Answers a request for a path that is not the endpoint's. Its body is here, and within the limits."""

_ABOUT_THE_MESSAGE: Final = (405, 415)
"""Refusals that tell how the endpoint is to be used: only who may use it is told."""

_PACKED: Final = Refusal(
    415, "Unsupported content encoding: send the body as it is", ((b"accept-encoding", b"identity"),)
)
"""To read such a body as if it were not packed is to read something else than a proxy that unpacks it."""


class Doorkeeper(Protocol):
    """Finds out who sends a request, and whether that is allowed."""

    def admit(self, incoming: Incoming) -> Refusal | Coroutine[Any, Any, Refusal | None] | None:
        """How the request is refused; None if it is not, and then `incoming.principal` is set.

        A coroutine if that cannot be said without I/O. It raises nothing.
        """
        ...


class Routes:
    """What is served at other paths than the endpoint's: at one path, or at a path and all below it."""

    def __init__(self) -> None:
        self._exact: dict[str, Route] = {}
        self._below: dict[str, Route] = {}

    def __setitem__(self, path: str, route: Route) -> None:
        self._exact[path] = route

    def update(self, routes: Mapping[str, Route]) -> None:
        """Serve several paths."""
        self._exact.update(routes)

    def set_below(self, path: str, route: Route) -> None:
        """Serve a path and all paths below it."""
        self._below[path.rstrip("/")] = route

    def get(self, path: str) -> Route | None:
        """The route of a path: its own, else that of the longest path above it."""
        route = self._exact.get(path)
        if route is not None or not self._below:
            return route
        # One look at each route, not at each part of the path: a client decides how many parts it has.
        named = path.rstrip("/")
        found = [above for above in self._below if not above or f"{named}/".startswith(f"{above}/")]
        return self._below[max(found, key=len)] if found else None

    def __contains__(self, path: str) -> bool:
        return self.get(path) is not None


class Gate:
    """Decides about requests. With `path` None all paths are the endpoint's."""

    def __init__(self, path: str | None, guard: Guard, body_limit: int) -> None:
        self._path = path
        self._guard = guard
        self._good_hosts = guard.good_hosts
        self._body_limit = body_limit
        self._digits = len(str(body_limit))
        self.doorkeeper: Doorkeeper | None = None
        """Set if only some may send requests."""
        self.proxies: TrustedProxies | None = None
        """The proxies that are believed where they say whose request they pass on."""
        self.routes = Routes()
        """What is served at other paths, to everybody."""
        self.probed: frozenset[str] = frozenset()
        """Routes that do not look at Host: a probe calls a process by its address. Origin is looked at."""
        self.public: frozenset[str] = frozenset()
        """Routes that pages of every origin may read: they answer with CORS headers of their own."""
        self.secret: frozenset[str] = frozenset()
        """Routes below which a path opens something to whoever reads it: no log has it."""
        self.cors: Cors | None = None
        """Set if pages of other origins may call."""

    def refusal(self, method: str, path: str, root: str, headers: Headers) -> Refusal | None:
        """Why this request is refused by its head alone; None if it is not, `ROUTED` if it has a route."""
        length = headers.get(b"content-length", b"")
        if len(length) >= self._digits and length.isdigit() and int(length[:20]) > self._body_limit:
            return Refusal(413, f"Body too large: the limit is {self._body_limit} bytes")
        host = headers.get(b"host")
        is_named = host in self._good_hosts or self._guard.allows_host(host)
        if not is_named and path.removeprefix(root) not in self.probed:
            return Refusal(421, "Host not allowed: add it to `allowed_hosts` to serve it")
        origin = headers.get(b"origin")
        if origin is not None and not self._guard.allows_origin(origin) and not self._is_public(path, root):
            return Refusal(403, "Origin not allowed: add it to `allowed_origins` to serve it")
        if not is_named:
            return ROUTED
        if path != self._path and not self._is_here(path, root):
            if path.removeprefix(root) in self.routes:
                return ROUTED
            return Refusal(404, f"Not found: the MCP endpoint is {root}{self._path}")
        if method != "POST":
            if self.cors is not None and is_preflight(method, headers):
                return ROUTED
            return Refusal(405, "Method not allowed: send JSON-RPC messages by POST")
        content_type = headers.get(b"content-type")
        if content_type != b"application/json" and not _is_json(content_type):
            return Refusal(415, "Unsupported media type: send application/json")
        return None if b"content-encoding" not in headers else _packed(headers[b"content-encoding"])

    def _is_public(self, path: str, root: str) -> bool:
        return path.removeprefix(root) in self.public

    def _is_here(self, path: str, root: str) -> bool:
        if self._path is None:
            return path.removeprefix(root) not in self.routes
        return bool(root) and path == root + self._path

    def admit(self, incoming: Incoming) -> Coroutine[Any, Any, Refusal | None] | None:
        """Find out who sends a request, and update its `refusal`.

        Returns a coroutine if that takes I/O: its result is the refusal then, which meanwhile is `PENDING`.
        """
        if self.proxies is not None:
            incoming.address = self.proxies.client_of(incoming)
        refusal = incoming.refusal
        if self.doorkeeper is None or not _is_about_the_message(incoming):
            return None
        verdict = self.doorkeeper.admit(incoming)
        if verdict is None:
            return None
        if isinstance(verdict, Refusal):
            incoming.refusal = verdict
            return None
        incoming.refusal = PENDING
        return _settled(verdict, refusal)

    def route_of(self, incoming: Incoming, root: str) -> Route:
        """The route of a request that is `ROUTED`."""
        is_asked = self.cors is not None and is_preflight(incoming.method, incoming.headers)
        if self.cors is not None and is_asked and not self._is_public(incoming.path, root):
            return self.cors.preflight
        route = self.routes.get(incoming.path.removeprefix(root))
        assert route is not None
        return route

    def loggable(self, path: str) -> str:
        """A path as a log may have it."""
        secret = next((above for above in self.secret if path.startswith(f"{above}/")), None)
        return path if secret is None else f"{secret}/..."

    def calling_page(self, headers: Headers) -> bytes | None:
        """The origin of the page that has sent a request, if it may read the response; None for the rest."""
        if self.cors is None or (origin := headers.get(b"origin")) is None:
            return None
        return origin if self._guard.allows_origin(origin) else None

    def readable(self, refusal: Refusal, headers: Headers) -> Refusal:
        """A refusal that the page which has sent the request can read, if a page has."""
        origin = self.calling_page(headers)
        return refusal if origin is None or self.cors is None else self.cors.readable(refusal, origin)


def _is_about_the_message(incoming: Incoming) -> bool:
    """Whether nothing is wrong so far but the message itself. A browser's preflight has no credentials."""
    refusal = incoming.refusal
    if refusal is not None and refusal.status not in _ABOUT_THE_MESSAGE:
        return False
    return incoming.method != "OPTIONS" or b"access-control-request-method" not in incoming.headers


async def _settled(verdict: Coroutine[Any, Any, Refusal | None], otherwise: Refusal | None) -> Refusal | None:
    return await verdict or otherwise


def _packed(encoding: bytes) -> Refusal | None:
    """Why a body with this `Content-Encoding` is refused."""
    return None if encoding.strip().lower() == b"identity" else _PACKED


def _is_json(content_type: bytes | None) -> bool:
    return content_type is not None and content_type.partition(b";")[0].strip().lower() == b"application/json"
