"""How a server is served: over HTTP, by itself or mounted, over stdio, and in memory."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ekiden.errors import UsageError
from ekiden.server.auth.auth import Auth
from ekiden.server.endpoint import ServerEndpoint
from ekiden.server.mounting.mounting import Mounting
from ekiden.server.operations.card import install_card
from ekiden.server.operations.custom_routes import WithRoutes
from ekiden.server.sealing.key_source import KeySource
from ekiden.stores import Store
from ekiden.transports.server.guard import LOCALHOST, Guard
from ekiden.transports.server.memory import MemoryChannel, connect
from ekiden.transports.server.proxies import TrustedProxies
from ekiden.wire.json import JsonObject
from ekiden.wire.principal import Principal

if TYPE_CHECKING:  # Whoever serves imports what serves.
    from ekiden.transports.server.asgi import HttpLimits, StreamableHTTP
    from ekiden.transports.server.reply import Receive, Scope, Send

__all__ = ["Serving"]


class Serving(Mounting, WithRoutes):
    """The part of a server that connects it to transports."""

    endpoint: ServerEndpoint
    """The server as transports see it."""
    _auth: Auth | None
    _card: JsonObject | None
    _store: Store | None
    _keys: KeySource
    _has_one_client: bool = False

    @property
    def renews_keys(self) -> bool:
        """Whether its keys can change while it runs: they come from a file or a function."""
        return self._keys.can_change

    def renew_keys(self) -> None:
        """Read the keys again now, instead of within some seconds. SIGHUP does this, too."""
        self._keys.renew()

    def asgi(
        self,
        *,
        path: str | None = "/mcp",
        allowed_hosts: Iterable[str] = LOCALHOST,
        allowed_origins: Iterable[str] | None = None,
        trusted_proxies: Iterable[str] = (),
        limits: "HttpLimits | None" = None,
        health: bool = True,
    ) -> "StreamableHTTP":
        """An ASGI application that serves Streamable HTTP at `path`.

        `allowed_hosts` are the names that clients may call this server by (`["*"]`: any);
        `allowed_origins` the web origins whose pages may, by default those of the hosts that are named.
        `trusted_proxies` are the addresses and networks of proxies whose `X-Forwarded-For` says where a
        request comes from; without any, a request comes from whoever has connected.
        Beside it are `/healthz` and `/readyz`, unless `health` is False, the pages of `route`, and the card.
        To mount it, see `running`; with `path=None` it answers at any path where it is mounted.
        """
        from ekiden.transports.server.asgi import HttpLimits, StreamableHTTP

        guard = Guard(allowed_hosts, allowed_origins)
        application = StreamableHTTP(self.endpoint, path=path, guard=guard, limits=limits or HttpLimits())
        if isinstance(trusted_proxies, str):
            raise UsageError("trusted_proxies is a list: write ['10.0.0.0/8']")
        if proxies := tuple(trusted_proxies):
            application.gate.proxies = TrustedProxies(proxies)
        if self._auth is not None:
            application.gate.doorkeeper = self._auth
            if (metadata := self._auth.metadata) is not None:
                application.gate.routes.update(dict.fromkeys(metadata.paths(path), metadata.serve))
        if self._card is not None:
            install_card(application.gate, self._card, path)
        has_health = health and path is not None
        self._custom_routes.install(application.gate, self.endpoint, self._store, health=has_health)
        return application

    @property
    def auth(self) -> Auth | None:
        """Who may send requests over HTTP; None if everybody may."""
        return self._auth

    def auth_metadata(self) -> "Callable[[Scope, Receive, Send], Awaitable[None]]":
        """An ASGI application with the metadata of `auth=`, for a server that is mounted below another path.

        Mount it at `/.well-known/oauth-protected-resource` of the whole application.
        """
        if self._auth is None or self._auth.metadata is None:
            raise UsageError("there is no metadata: Server(auth=Auth(..., issuer=...)) has some")
        return self._auth.metadata.application

    @asynccontextmanager
    async def running(self, _application: object = None) -> AsyncGenerator[None, None]:
        """The server's lifespan as a context manager: `Starlette(lifespan=server.running)`."""
        async with self.endpoint.in_use():
            yield

    def connect(self, *, principal: Principal | None = None) -> AbstractAsyncContextManager[MemoryChannel]:
        """A channel to this server in memory: `async with server.connect() as channel`.

        `principal` is who sends what comes over it, by default the `local` one of `auth=`.
        """
        return connect(self.endpoint, principal)

    def serve_one_client(self) -> None:
        """Expect one client in one process, as on stdio: nobody else needs the keys, so none need be set."""
        self._has_one_client = True

    def run(
        self,
        transport: Literal["http", "stdio"] = "http",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        path: str = "/mcp",
        allowed_hosts: Iterable[str] = LOCALHOST,
        allowed_origins: Iterable[str] | None = None,
        trusted_proxies: Iterable[str] = (),
        limits: "HttpLimits | None" = None,
        grace: float = 10.0,
        log_level: str = "info",
        access_log: bool = False,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
        metrics_port: int | None = None,
    ) -> None:
        """Serve until interrupted.

        Running calls then have `grace` seconds to end, and after them steps of tasks have as long again.
        `access_log=True` logs a line for each response over HTTP. With `metrics_port`, Prometheus can fetch
        the metrics at that port of this machine; it needs `ekiden[prometheus]`. With `tls_cert`, a PEM file
        with the certificate and its chain, and `tls_key`, the server speaks HTTPS.
        """
        self.stop_tasks_within(grace)
        if metrics_port is not None:
            from ekiden.telemetry.prometheus import serve_metrics

            serve_metrics(metrics_port)
        from ekiden.server.serving.loop import new_event_loop

        # When KeyboardInterrupt arrives here, the server has shut down in order already.
        with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=new_event_loop) as runner:
            if transport == "stdio":
                from ekiden.transports.server.stdio import serve_stdio

                self.serve_one_client()
                runner.run(serve_stdio(self.endpoint, grace=grace))
            else:
                from ekiden.server.serving.http import serve_http

                application = self.asgi(
                    path=path,
                    allowed_hosts=allowed_hosts,
                    allowed_origins=allowed_origins,
                    trusted_proxies=trusted_proxies,
                    limits=limits,
                )
                options: dict[str, Any] = {"log_level": log_level, "access_log": access_log}
                options["tls_cert"] = None if tls_cert is None else str(tls_cert)
                options["tls_key"] = None if tls_key is None else str(tls_key)
                if self.renews_keys:
                    options["on_hangup"] = self.renew_keys
                runner.run(serve_http(application, host=host, port=port, grace=grace, **options))
