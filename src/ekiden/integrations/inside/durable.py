"""`DurableHandlers`: what authors hold. Registers handlers in an ekiden server that only its host serves."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, Protocol, TypedDict

from ekiden import RegistrationError, RoundLimits, Server, Store, TaskLimits
from ekiden.engine import Engine, Keys, Kind, principal_of
from ekiden.integrations.inside.checks import check_context, warn_of_keys

__all__ = ["KEYS", "DurableHandlers", "DurableOptions", "Host", "check_names"]

KEYS: Final[dict[Kind, str]] = {
    "tools": "name",
    "prompts": "name",
    "resources": "uri",
    "resourceTemplates": "uriTemplate",
}
"""What each kind of definition is known by."""


class Host(Protocol):
    """The part of a host that registration needs."""

    def has(self, kind: Kind, key: str) -> bool:
        """Whether the host has a tool, prompt, resource or template of its own under this name."""
        ...

    def check_tasks(self) -> None:
        """Raise a `RegistrationError` if the host has tasks of its own."""
        ...

    def offer_tasks(self) -> None:
        """Answer the `tasks/` methods; called again for every tool that can become a task."""
        ...


class _Handlers(Server):
    """Where handlers are registered. It refuses what does not go together with the host."""

    host: Host
    engine: Engine

    def move_in(self, host: Host, engine: Engine) -> None:
        """Belong to a host from now on."""
        self.host, self.engine = host, engine
        self._has_auth = True  # The host knows what a caller may do, so that `scopes=` can be used.

    def add_tool(self, function: Callable[..., Any], **options: Any) -> None:
        """Register a tool."""
        check_context(function)
        is_task = options.get("task", "never") != "never"
        if is_task:
            self.host.check_tasks()
        super().add_tool(function, **options)
        self._newest("tools", self.remove_tool)
        if is_task:
            self.host.offer_tasks()

    def add_prompt(self, function: Callable[..., Any], **options: Any) -> None:
        """Register a prompt."""
        check_context(function)
        super().add_prompt(function, **options)
        self._newest("prompts", self.remove_prompt)

    def add_resource(self, uri: str, function: Callable[..., Any], **options: Any) -> None:
        """Register a resource or a template."""
        check_context(function)
        before = len(self.engine.definitions("resources"))
        super().add_resource(uri, function, **options)
        if len(self.engine.definitions("resources")) > before:
            self._newest("resources", self.remove_resource)
        else:
            self._newest("resourceTemplates", self.remove_resource)

    def _newest(self, kind: Kind, remove: Callable[[str], None]) -> None:
        """Take back what was registered last, if the host has something of that name already."""
        key: str = self.engine.definitions(kind)[-1][KEYS[kind]]
        if self.host.has(kind, key):
            remove(key)
            raise _taken(kind, key)


def _taken(kind: Kind, key: str) -> RegistrationError:
    """The error for a name that both sides want."""
    what = {"tools": "tool", "prompts": "prompt", "resources": "resource"}.get(kind, "resource template")
    other = "another URI" if "resource" in what else "another name"
    return RegistrationError(
        f"the host has a {what} {key!r} of its own: give one of the two {other}, or remove the host's"
    )


def check_names(engine: Engine, host: Host) -> None:
    """Raise if the host has got a component of a name that is registered here since."""
    for kind, field in KEYS.items():
        for definition in engine.definitions(kind):
            if host.has(kind, definition[field]):
                raise _taken(kind, definition[field])


class DurableOptions(TypedDict, total=False):
    """The options of `ekiden.Server` that durable handlers have in every host."""

    store: Store | str | None
    keys: Keys | None
    seal_store: bool
    audience: str | None
    rounds: RoundLimits | None
    tasks: TaskLimits | None
    cannot_ask: Literal["error", "result"]


class DurableHandlers:
    """Durable tools, prompts and resources beside those of a host.

    `tool`, `prompt` and `resource` take all options of an ekiden `Server`, and so do `add_tool`, `add_prompt`
    and `add_resource`. Handlers take ekiden's `Context`; `ctx.state` is what the host's lifespan yielded.
    """

    def __init__(self, host: Host, name: str, version: str | None, options: DurableOptions) -> None:
        self._state: object = None
        server = _Handlers(
            name,
            version=version or "0.0.0",
            principal=principal_of,
            lifespan=self._lifespan,
            **options,
        )
        self.engine = Engine(server)
        """The handlers, as `ekiden.engine` has them."""
        server.move_in(host, self.engine)
        warn_of_keys(options.get("keys"), shared=server.shares_tasks)
        self.tool = server.tool
        """Register a function as a durable tool; see `ekiden.Server.tool`."""
        self.prompt = server.prompt
        """Register a function as a durable prompt; see `ekiden.Server.prompt`."""
        self.resource = server.resource
        """Register a function as a durable resource; see `ekiden.Server.resource`."""
        self.add_tool, self.remove_tool = server.add_tool, server.remove_tool
        self.add_prompt, self.remove_prompt = server.add_prompt, server.remove_prompt
        self.add_resource, self.remove_resource = server.add_resource, server.remove_resource

    @asynccontextmanager
    async def _lifespan(self, _: Server) -> AsyncGenerator[object, None]:
        yield self._state

    @asynccontextmanager
    async def running(self, state: object = None) -> AsyncGenerator[None, None]:
        """Run tasks and be ready for calls, inside the host's lifespan, which yielded `state`."""
        self._state = state
        async with self.engine.running():
            yield
