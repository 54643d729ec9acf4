"""`Server`: the class that authors use. Creates the parts of a server, and connects it to transports."""

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from ekiden.errors import UsageError
from ekiden.rounds.leg import Leg
from ekiden.server.endpoint import ServerEndpoint
from ekiden.server.legacy.sessions import SessionLimits, Sessions
from ekiden.server.middleware import Middleware
from ekiden.server.registration.catalog import CacheHint
from ekiden.server.registration.decorators import Authoring
from ekiden.server.registration.registry import Registry, unknown_cache_keys
from ekiden.server.registration.tools import described
from ekiden.server.rounds.once import Once
from ekiden.server.rounds.rounds import Rounds
from ekiden.server.sealing.keys import find_keys, has_lasting_keys
from ekiden.server.sealing.store import SealedStore
from ekiden.server.sealing.tokens import RoundLimits, Sealer
from ekiden.server.tasks.tasks import Tasks
from ekiden.stores import Store, open_store
from ekiden.stores.memory import MemoryStore
from ekiden.tasks.runner import TaskLimits
from ekiden.transports.server.asgi import HttpLimits, StreamableHTTP
from ekiden.transports.server.guard import LOCALHOST, Guard
from ekiden.transports.server.memory import MemoryChannel, connect
from ekiden.wire import versions
from ekiden.wire.modern import Request

if TYPE_CHECKING:  # The official models take 0.3 s to import; code that passes one has imported them.
    from mcp_types import Icon

__all__ = ["Server"]


class Server(Authoring):
    """An MCP server.

    `lifespan` is a function from the server to an async context manager; what it yields is
    `ctx.state`. `cache` maps list methods (`"tools/list"`, `"server/discover"`, ...) to hints.
    `page_size` None sends each list whole.

    `keys` seal the state of calls that ask: raw secrets, base64 text, or a file of them; without
    any, `EKIDEN_KEYS` or `EKIDEN_KEYS_FILE`. `store` remembers rounds beyond this process:
    `"sqlite:///path"` or a store object; without one, what `EKIDEN_STORE` names. A store that is given by
    name is closed when the server stops; close a store object yourself. With `seal_store=True`
    arguments, answers and results are sealed with the keys before they are stored. `audience`, by default
    the name, distinguishes servers that share keys. `principal` returns whose request it is; a state is
    valid only for the principal that it was made for.

    Clients of 2025 have sessions in this process, within the limits of `sessions`; with
    `stateless_2025=True` they are served without sessions, and cannot be asked anything.
    `experimental_protocol_version="2026-06-XX"` speaks that draft to clients which ask for it.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: "Sequence[Icon] | None" = None,
        instructions: str | None = None,
        lifespan: Callable[["Server"], AbstractAsyncContextManager[object]] | None = None,
        cache: Mapping[str, CacheHint] | None = None,
        page_size: int | None = None,
        keys: Iterable[bytes | str] | Path | None = None,
        store: Store | str | None = None,
        seal_store: bool = False,
        audience: str | None = None,
        principal: Callable[[Request], str | None] | None = None,
        rounds: RoundLimits | None = None,
        sessions: SessionLimits | None = None,
        stateless_2025: bool = False,
        experimental_protocol_version: str | None = None,
        tasks: TaskLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        _check_options(page_size, cache or {}, experimental_protocol_version)
        self.name, self.version = name, version
        labels = {"title": title, "description": description, "website_url": website_url, "icons": icons}
        info = described({"name": name, "version": version}, **labels)
        registry = Registry(info, instructions, cache or {}, page_size)
        ring = functools.cache(lambda: find_keys(keys))
        if keys is not None:
            ring()  # Bad keys are refused now, not when they are first needed.
        opened, is_own = _find_store(store)
        self.shares_tasks = opened is not None and opened.shared and not isinstance(opened, MemoryStore)
        """Whether workers in other processes see this server's tasks."""
        if seal_store and self.shares_tasks:
            _check_lasting(keys)
        self._store = SealedStore(opened, ring) if seal_store and opened is not None else opened
        kept = None if self._store is None else self._store.tasks
        super().__init__(registry, has_store=self._store is not None, has_tasks_store=kept is not None)
        sealer = Sealer(audience or name, ring, self._store, principal, rounds or RoundLimits(), clock)
        self._rounds = Rounds(sealer, _once(self._store, rounds or RoundLimits(), clock), clock)
        if kept is not None:
            offered = Tasks(kept, registry, audience or name, principal, tasks or TaskLimits(), clock)
            self._rounds.offer_tasks(offered, registry)
        self.endpoint = ServerEndpoint(
            registry,
            self._rounds,
            None if lifespan is None else lambda: lifespan(self),
            functools.partial(
                Sessions,
                registry=registry,
                principal=principal,
                limits=sessions or SessionLimits(),
                stateless=stateless_2025,
                draft=experimental_protocol_version is not None,
            ),
            release=self._store.close if is_own and self._store is not None else None,
        )
        """The server as transports see it."""

    # Around requests

    @overload
    def middleware(self, function: Middleware) -> Middleware: ...
    @overload
    def middleware(self, *, tasks: bool = False) -> Callable[[Middleware], Middleware]: ...
    def middleware(self, function: Middleware | None = None, *, tasks: bool = False) -> Any:
        """Register `async def f(request, call_next)`, called around every request.

        `await call_next(request)` gives the outcome. The first registered is the outermost. With
        `tasks=True` it is called around every leg of a task too: `request.task` is then its id.
        """
        if function is not None:
            self.endpoint.wrap(function, tasks=tasks)
            return function

        def register(decorated: Middleware) -> Middleware:
            self.endpoint.wrap(decorated, tasks=tasks)
            return decorated

        return register

    # Serving

    @property
    def has_tasks(self) -> bool:
        """Whether any tool can become a task."""
        return self._registry.has_tasks

    def leave_tasks(self) -> None:
        """Run no tasks in this process: calls still become tasks, and workers elsewhere run them."""
        if self._rounds.tasks is not None:
            self._rounds.tasks.limit(concurrency=0)

    def stop_tasks_within(self, seconds: float) -> None:
        """Set how long steps of tasks may take to end when the server stops. Call it before the start."""
        if self._rounds.tasks is not None:
            self._rounds.tasks.limit(grace_seconds=seconds)

    def asgi(
        self,
        *,
        path: str | None = "/mcp",
        allowed_hosts: Iterable[str] = LOCALHOST,
        allowed_origins: Iterable[str] | None = None,
        limits: HttpLimits | None = None,
    ) -> StreamableHTTP:
        """An ASGI application that serves Streamable HTTP at `path`.

        `allowed_hosts` are the names that clients may call this server by (`["*"]`: any);
        `allowed_origins` the web origins whose pages may, by default those of the allowed hosts.
        To mount it, see `running`; with `path=None` it answers at any path where it is mounted.
        """
        guard = Guard(allowed_hosts, allowed_origins)
        return StreamableHTTP(self.endpoint, path=path, guard=guard, limits=limits or HttpLimits())

    def observe(self, tool: str, watch: Callable[[Leg], None]) -> None:
        """For `ekiden.testing`: call `watch` with every leg before it runs. `tool` must be registered."""
        if self._registry.tools.get(tool) is None:
            raise UsageError(f"there is no tool {tool!r} to observe")
        self._rounds.watch = watch

    @asynccontextmanager
    async def running(self, _application: object = None) -> AsyncGenerator[None, None]:
        """The server's lifespan as a context manager: `Starlette(lifespan=server.running)`."""
        async with self.endpoint.in_use():
            yield

    def connect(self) -> AbstractAsyncContextManager[MemoryChannel]:
        """A channel to this server in memory: `async with server.connect() as channel`."""
        return connect(self.endpoint)

    def run(
        self,
        transport: Literal["http", "stdio"] = "http",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        path: str = "/mcp",
        allowed_hosts: Iterable[str] = LOCALHOST,
        allowed_origins: Iterable[str] | None = None,
        limits: HttpLimits | None = None,
        grace: float = 10.0,
        log_level: str = "info",
    ) -> None:
        """Serve until interrupted.

        Running calls then have `grace` seconds to end, and after them steps of tasks have as long again.
        """
        self.stop_tasks_within(grace)
        from ekiden.server.serve import new_event_loop, serve_http
        from ekiden.transports.server.stdio import serve_stdio

        # When KeyboardInterrupt arrives here, the server has shut down in order already.
        with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=new_event_loop) as runner:
            if transport == "stdio":
                runner.run(serve_stdio(self.endpoint, grace=grace))
            else:
                application = self.asgi(
                    path=path, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins, limits=limits
                )
                runner.run(serve_http(application, host=host, port=port, grace=grace, log_level=log_level))


def _check_options(page_size: int | None, cache: Mapping[str, CacheHint], experimental: str | None) -> None:
    if page_size is not None and page_size < 1:
        raise UsageError("page_size must be at least 1, or None to send each list whole")
    if unknown := unknown_cache_keys(cache):
        raise UsageError(f"cache= has keys that are not cacheable lists: {', '.join(sorted(unknown))}")
    if experimental not in (None, versions.DRAFT):
        raise UsageError(f"the only experimental protocol version is {versions.DRAFT!r}")


def _check_lasting(keys: Iterable[bytes | str] | Path | None) -> None:
    if not has_lasting_keys(keys):
        raise UsageError("seal_store=True needs keys= or EKIDEN_KEYS: nothing would open after a restart")


def _find_store(store: Store | str | None) -> tuple[Store | None, bool]:
    """The store, opened if only its name is given, and whether the server opened it."""
    given = store if store is not None else os.environ.get("EKIDEN_STORE") or None
    return (open_store(given), True) if isinstance(given, str) else (given, False)


def _once(store: Store | None, limits: RoundLimits, clock: Callable[[], float]) -> Once:
    """The ledger of rounds: in the store, or in the memory of this process."""
    ledger = store or MemoryStore(shared=False)
    return Once(ledger, clock, lease=limits.lease_seconds, keep=limits.flow_seconds)
