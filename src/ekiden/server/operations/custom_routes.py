"""What authors serve at paths of their own, which every application made of it serves beside the endpoint."""

from collections.abc import Callable, Collection
from typing import Protocol

from ekiden.errors import UsageError
from ekiden.rounds.ledger import Ledger
from ekiden.server.operations.health import HEALTH, READY, Readiness, live
from ekiden.server.operations.routes import AsgiApp, RouteHandler, asgi_route, handler_route
from ekiden.transports.server.gate import Gate, Route

__all__ = ["CustomRoutes", "WithRoutes"]


class Startable(Protocol):
    """What readiness needs of a server."""

    def unready(self) -> str | None:
        """Why it should not be sent requests right now; None if it should."""
        ...


class CustomRoutes:
    """What `@server.route` has registered."""

    def __init__(self) -> None:
        self._at: dict[str, Route] = {}
        self._below: dict[str, Route] = {}
        self._secret: set[str] = set()

    def add(
        self, path: str, methods: Collection[str], app: AsgiApp | None, *, is_secret: bool = False
    ) -> Callable[[RouteHandler], RouteHandler]:
        """Register an application, or return the decorator that registers a function.

        `is_secret`: whoever knows a path below this one may open it, so that no log has it.
        """
        if not path.startswith("/"):
            raise UsageError(f"the path of a page begins with a slash: {path!r}")
        if app is not None:
            self._below[path] = asgi_route(app, path)
        if is_secret:
            self._secret.add(path)

        def register(handler: RouteHandler) -> RouteHandler:
            if app is not None:
                raise UsageError("route(app=...) is called, not used as a decorator")
            self._at[path] = handler_route(handler, methods)
            return handler

        return register

    def install(self, gate: Gate, server: Startable, store: Ledger | None, *, health: bool) -> None:
        """Serve them behind a gate; with `health`, the pages for probes too."""
        if health:
            look = None if store is None else lambda: store.look("readiness", "", now=0.0)
            gate.routes[HEALTH] = handler_route(live, ["GET"])
            gate.routes[READY] = handler_route(Readiness(server.unready, look), ["GET"])
            gate.probed = frozenset({HEALTH, READY})
        for path, route in self._at.items():
            gate.routes[path] = route
        for path, route in self._below.items():
            gate.routes.set_below(path, route)
        gate.secret |= self._secret


class WithRoutes:
    """The part of a server that serves paths of its author's own."""

    _custom_routes: CustomRoutes

    def route(
        self, path: str, *, methods: Collection[str] = ("GET",), app: AsgiApp | None = None
    ) -> Callable[[RouteHandler], RouteHandler]:
        """Serve a page of your own beside the endpoint: `@server.route("/status")`.

        The function gets an `HttpRequest` and returns an `HttpResponse`, or only its body: text, bytes or
        JSON. With `app=`, an ASGI application serves the path and all below it: call it, do not decorate.
        Pages are served to everybody: tokens are for the endpoint.
        """
        return self._custom_routes.add(path, methods, app)
