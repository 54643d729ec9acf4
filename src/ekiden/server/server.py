"""`Server`: what authors hold in their hands. Registers handlers, and hands out transports."""

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ekiden.errors import RegistrationError, UsageError
from ekiden.rounds.ledger import Ledger
from ekiden.rounds.leg import Leg
from ekiden.server.catalog import Cache
from ekiden.server.completions import Reference
from ekiden.server.endpoint import Middleware, ServerEndpoint
from ekiden.server.flow import Flows
from ekiden.server.handlers import OnceMode, TaskMode
from ekiden.server.keys import find_keys
from ekiden.server.once import Once
from ekiden.server.prompts import Prompt
from ekiden.server.questions import Askable, needed_for
from ekiden.server.registry import Registry, unknown_cache_keys
from ekiden.server.resources import Resource, is_template
from ekiden.server.sealing import RoundLimits, Sealer
from ekiden.server.sessions import SessionLimits, Sessions
from ekiden.server.task_work import CancelledTask
from ekiden.server.tasks import Tasks
from ekiden.server.tools import Tool, described
from ekiden.stores import open_store
from ekiden.stores.memory import MemoryStore
from ekiden.tasks.runner import TaskLimits
from ekiden.transports.asgi import Limits, StreamableHTTP
from ekiden.transports.guard import LOCALHOST, Guard
from ekiden.transports.memory import MemoryChannel, connect
from ekiden.wire import versions
from ekiden.wire.modern import Request

if TYPE_CHECKING:  # The official models take 0.3 s to import; whoever passes one has done so.
    from mcp_types import Annotations, Icon, ToolAnnotations

__all__ = ["Server"]

F = TypeVar("F", bound=Callable[..., Any])


class Server:
    """An MCP server.

    `lifespan` is a function from the server to an async context manager; what it yields is
    `ctx.state`. `cache` maps list methods (`"tools/list"`, `"server/discover"`, ...) to hints.
    `page_size` None sends each list whole.

    `keys` seal the state of calls that ask: raw secrets, base64 text, or a file of them; without
    any, `EKIDEN_KEYS` or `EKIDEN_KEYS_FILE`. `store` remembers rounds beyond this process:
    `"sqlite:///path"` or a store object; without one, what `EKIDEN_STORE` names. `audience` tells
    servers that share keys apart, by default the name. `principal` says whose request this is; a
    state is good for that one only.

    Clients of 2025 have sessions in this process, within the limits of `sessions`; with
    `stateless_2025=True` they are served without, and cannot be asked anything.
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
        lifespan: Callable[["Server"], AbstractAsyncContextManager[Any]] | None = None,
        cache: Mapping[str, Cache] | None = None,
        page_size: int | None = None,
        keys: Iterable[bytes | str] | Path | None = None,
        store: Ledger | str | None = None,
        audience: str | None = None,
        principal: Callable[[Request], str | None] | None = None,
        rounds: RoundLimits | None = None,
        sessions: SessionLimits | None = None,
        stateless_2025: bool = False,
        experimental_protocol_version: str | None = None,
        tasks: TaskLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if page_size is not None and page_size < 1:
            raise UsageError("page_size must be at least 1, or None to send each list whole")
        if unknown := unknown_cache_keys(cache or {}):
            raise UsageError(f"cache= names no cacheable list: {', '.join(sorted(unknown))}")
        if experimental_protocol_version not in (None, versions.DRAFT):
            raise UsageError(f"the only experimental protocol version is {versions.DRAFT!r}")
        self.name = name
        self.version = version
        info = described(
            {"name": name, "version": version},
            title=title,
            description=description,
            website_url=website_url,
            icons=icons,
        )
        self._registry = Registry(info, instructions, cache or {}, page_size)
        store = store if store is not None else os.environ.get("EKIDEN_STORE") or None
        self._store = open_store(store) if isinstance(store, str) else store
        limits = rounds or RoundLimits()
        ring = functools.cache(lambda: find_keys(keys))
        if keys is not None:
            ring()
        sealer = Sealer(audience or name, ring, self._store, principal, limits, clock)
        once = Once(
            self._store or MemoryStore(shared=False),
            clock,
            lease=limits.lease_seconds,
            keep=limits.flow_seconds,
        )
        enter = None if lifespan is None else lambda: lifespan(self)
        self._flows = Flows(sealer, once, clock)
        if (kept := getattr(self._store, "tasks", None)) is not None:
            self._flows.tasks = Tasks(
                kept,
                self._registry,
                audience=audience or name,
                principal=principal,
                limits=tasks or TaskLimits(),
                clock=clock,
            )
        self.endpoint = ServerEndpoint(
            self._registry,
            self._flows,
            enter,
            lambda endpoint: Sessions(
                endpoint,
                self._registry,
                principal,
                sessions or SessionLimits(),
                stateless=stateless_2025,
                draft=experimental_protocol_version is not None,
            ),
        )
        """The server as transports see it."""

    # Tools

    @overload
    def tool(self, function: F) -> F: ...
    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: "ToolAnnotations | None" = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        structured: bool | None = None,
        asks: Iterable[Askable | Any] = (),
        once: OnceMode = "auto",
        resume: Literal["replay", "parked"] = "replay",
        task: TaskMode = "never",
        on_cancel: Callable[[CancelledTask], Any] | None = None,
    ) -> Callable[[F], F]: ...
    def tool(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Register a function as a tool. The function itself is returned unchanged.

        The name, the description and the schemas come from the function unless they are given.
        `input_schema` and `output_schema` are JSON Schemas passed through verbatim; with an
        `input_schema`, the handler takes the properties as parameters, or all of them as one
        dict if it has a single parameter. `structured=False` sends data as text only.

        `asks` names what the handler will ask for (`"elicitation"`, `"sampling"`, ..., or the types
        of its forms): a client that lacks it is told before the handler runs. `once=True` lets no
        round be used twice, and needs a store; `once=False` forgets every round. `resume="parked"`
        keeps the coroutine in memory between rounds, for what cannot be replayed.

        `task` says whether the call can become a task, which needs a store: `"deferred"` when the
        handler calls `ctx.background()`, `"optional"` from the start where the client has tasks,
        `"required"` always. `on_cancel` cleans up after a task that was cancelled.
        """
        return _register(self.add_tool, function, options)

    def add_tool(self, function: Callable[..., Any], **options: Any) -> None:
        """Register a tool; the options are those of `tool`. Allowed while the server runs."""
        self._registry.tools.add(Tool(function, **self._with_rounds(options)))

    def _with_rounds(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options, with those about rounds checked and gathered."""
        once, resume = options.pop("once", "auto"), options.pop("resume", "replay")
        if once is True and self._store is None:
            raise RegistrationError("once=True needs a store: Server(..., store='sqlite:///rounds.db')")
        if once is True and resume == "parked":
            raise RegistrationError("a parked handler is resumed once anyway: leave once=True out")
        task: TaskMode = options.pop("task", "never")
        if task != "never" and self._flows.tasks is None:
            raise RegistrationError(f"task={task!r} needs a store: Server(..., store='sqlite:///tasks.db')")
        if task != "never" and resume == "parked":
            raise RegistrationError("a task is replayed, never parked: leave resume='parked' out")
        needs = tuple(needed_for(asked) for asked in options.pop("asks", ()))
        return {**options, "rounds": {"once": once, "resume": resume, "needs": needs, "task": task}}

    def remove_tool(self, name: str) -> None:
        """Take a tool back. Calls that are running go on."""
        self._registry.tools.remove(name)

    # Prompts

    @overload
    def prompt(self, function: F) -> F: ...
    @overload
    def prompt(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        asks: Iterable[Askable | Any] = (),
        once: OnceMode = "auto",
        resume: Literal["replay", "parked"] = "replay",
    ) -> Callable[[F], F]: ...
    def prompt(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Register a function as a prompt. It returns text, messages, or a `GetPromptResult`."""
        return _register(self.add_prompt, function, options)

    def add_prompt(self, function: Callable[..., Any], **options: Any) -> None:
        """Register a prompt; the options are those of `prompt`. Allowed while the server runs."""
        self._registry.prompts.add(Prompt(function, **self._with_rounds(options)))

    def remove_prompt(self, name: str) -> None:
        """Take a prompt back."""
        self._registry.prompts.remove(name)

    # Resources

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: "Annotations | None" = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        cache: Cache | None = None,
        asks: Iterable[Askable | Any] = (),
        once: OnceMode = "auto",
        resume: Literal["replay", "parked"] = "replay",
    ) -> Callable[[F], F]:
        """Register a function as a resource, or as a template where `uri` has `{variables}`.

        It returns text, bytes, data (sent as JSON), contents, or a `ReadResourceResult`.
        """
        options: dict[str, Any] = {
            "name": name,
            "title": title,
            "description": description,
            "mime_type": mime_type,
            "size": size,
            "annotations": annotations,
            "icons": icons,
            "meta": meta,
            "cache": cache,
            "asks": asks,
            "once": once,
            "resume": resume,
        }

        def register(function: F) -> F:
            self.add_resource(uri, function, **options)
            return function

        return register

    def add_resource(self, uri: str, function: Callable[..., Any], **options: Any) -> None:
        """Register a resource; the options are those of `resource`. Allowed while the server runs."""
        catalog = self._registry.templates if is_template(uri) else self._registry.resources
        catalog.add(Resource(uri, function, **self._with_rounds(options)))

    def remove_resource(self, uri: str) -> None:
        """Take a resource or a template back."""
        catalog = self._registry.templates if is_template(uri) else self._registry.resources
        catalog.remove(uri)

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch `uri` that its contents changed. Callable from any thread."""
        self._registry.hub.resource_updated(uri)

    # Completions

    def completion(
        self, *, argument: str, prompt: str | None = None, resource: str | None = None
    ) -> Callable[[F], F]:
        """Register a function that suggests values for an argument of a prompt or resource template.

        It is called with `value`, what was typed so far, and, if it wants them, `arguments`,
        the values of the other arguments. It returns the suggestions, the best first.
        """
        if (prompt is None) == (resource is None):
            raise UsageError("completion() needs either prompt= or resource=")
        reference: Reference = (
            ("ref/prompt", prompt) if prompt is not None else ("ref/resource", resource or "")
        )

        def register(function: F) -> F:
            self._registry.completions.add(reference, argument, function)
            self._registry.completions_changed()
            return function

        return register

    # Around requests

    def middleware(self, function: Middleware) -> Middleware:
        """Register `async def f(request, call_next)`, called around every request.

        `await call_next(request)` gives the outcome. The first registered is the outermost.
        """
        self.endpoint.wrap(function)
        return function

    # Serving

    @property
    def has_tasks(self) -> bool:
        """Whether any tool can become a task."""
        return self._registry.has_tasks

    @property
    def shares_tasks(self) -> bool:
        """Whether workers in other processes see this server's tasks."""
        return self._store is not None and self._store.shared and not isinstance(self._store, MemoryStore)

    def leave_tasks(self) -> None:
        """Serve only: calls become tasks here, and workers elsewhere run them."""
        if self._flows.tasks is not None:
            self._flows.tasks.leave()

    def asgi(
        self,
        *,
        path: str | None = "/mcp",
        allowed_hosts: Iterable[str] = LOCALHOST,
        allowed_origins: Iterable[str] | None = None,
        limits: Limits | None = None,
    ) -> StreamableHTTP:
        """An ASGI application that serves Streamable HTTP at `path`.

        `allowed_hosts` are the names that clients may call this server by (`["*"]`: any);
        `allowed_origins` the web origins whose pages may, by default those of the allowed hosts.
        To mount it, see `running`; `path=None` answers at whatever path it is mounted.
        """
        guard = Guard(allowed_hosts, allowed_origins)
        return StreamableHTTP(self.endpoint, path=path, guard=guard, limits=limits or Limits())

    def observe(self, tool: str, watch: Callable[[Leg], None], *, parked: bool) -> None:
        """For `ekiden.testing`: be told of a tool's legs, and have them parked or replayed."""
        found = self._registry.tools.get(tool)
        if found is None:
            raise UsageError(f"there is no tool {tool!r} to observe")
        found.handler.parked = parked
        self._flows.watch = watch

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
        limits: Limits | None = None,
        grace: float = 10.0,
        log_level: str = "info",
    ) -> None:
        """Serve until interrupted. Running calls then have `grace` seconds to finish."""
        from ekiden.server.serve import new_event_loop, serve_http
        from ekiden.transports.stdio import serve_stdio

        # Ctrl-C has ended the server in good order by the time it surfaces here.
        with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=new_event_loop) as runner:
            if transport == "stdio":
                runner.run(serve_stdio(self.endpoint, grace=grace))
            else:
                application = self.asgi(
                    path=path, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins, limits=limits
                )
                runner.run(serve_http(application, host=host, port=port, grace=grace, log_level=log_level))


def _register(add: Callable[..., None], function: Any, options: dict[str, Any]) -> Any:
    """`@server.tool` and `@server.tool(...)` are both understood."""
    if function is not None:
        add(function, **options)
        return function

    def register(decorated: F) -> F:
        add(decorated, **options)
        return decorated

    return register
