"""Everything that a server offers, and what it says about itself."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ekiden.server.middleware import Run
from ekiden.server.registration.catalog import CacheHint, Catalog
from ekiden.server.registration.completions import Completions
from ekiden.server.registration.extensions import Extensions
from ekiden.server.registration.prompts import Prompt
from ekiden.server.registration.resources import Resource
from ekiden.server.registration.tools import Tool
from ekiden.server.subscriptions import Filter, Hub
from ekiden.wire import versions
from ekiden.wire.json import JsonObject
from ekiden.wire.jsonrpc import MOST_RESULT_BYTES
from ekiden.wire.modern import Modern
from ekiden.wire.principal import Principal, grants

__all__ = ["UNAVAILABLE", "Registry"]

UNAVAILABLE: Final = "ekiden/unavailable"
"""The key of a list's `_meta` that names the servers behind this one which cannot be reached."""

_METHODS: Final = (
    "completion/complete",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "server/discover",
    "subscriptions/listen",
    "tools/call",
    "tools/list",
)

_LIST_METHODS: Final = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "server/discover",
)


class Registry:
    """The catalogs, the subscriptions to their changes, and the discovery result."""

    def __init__(
        self,
        server_info: JsonObject,
        instructions: str | None,
        cache: Mapping[str, CacheHint],
        page_size: int | None,
        result_bytes: int = MOST_RESULT_BYTES,
    ) -> None:
        self.server_info = server_info
        self.dialect = Modern(server_info)
        self.dialect.most_bytes = result_bytes
        self.hub = Hub()
        self.completions = Completions()
        self.extensions = Extensions(self.changed)
        self.instructions = instructions
        self._cache = cache
        self._page_size = page_size
        self.speaks_draft = False
        """Whether the draft 2026-06-XX is spoken to clients that ask for it."""
        self._discovery: bytes | None = None
        self.methods: set[str] = set()
        """The methods whose capability is declared: one set, which every change updates."""
        self.methods_of_sessions: set[str] = set()
        """The same for clients with a handshake, as far as extensions decide."""
        self.followers: list[Callable[[], None]] = []
        """Called after every change: by servers in which this one is mounted."""
        self.unlisted: list[Resource] = []
        """Resources that are in no list, looked at last."""
        self.unknown: list[Callable[[str], Run | None]] = []
        """Who may answer calls of tools and prompts that are not registered."""
        self.tasks_elsewhere: list[Callable[[], bool]] = []
        """Whether servers that are mounted have tasks."""
        self.unavailable: dict[str, str] = {}
        """Servers behind this one that cannot be reached now, and why. Call `availability_changed`."""
        self.tools: Catalog[Tool] = self._catalog("Tool", "tools", "tools/list", "toolsListChanged")
        self.prompts: Catalog[Prompt] = self._catalog(
            "Prompt", "prompts", "prompts/list", "promptsListChanged"
        )
        self.resources: Catalog[Resource] = self._catalog(
            "Resource", "resources", "resources/list", "resourcesListChanged"
        )
        self.templates: Catalog[Resource] = self._catalog(
            "Resource template", "resourceTemplates", "resources/templates/list", "resourcesListChanged"
        )
        self._offer()

    def _catalog(self, what: str, field: str, method: str, change: str) -> Catalog[Any]:
        publish = self.hub.list_publisher(change)

        def on_change() -> None:
            self.changed()
            publish()

        cache = self._cache.get(method, CacheHint())
        return Catalog(what, field, cache=cache, page_size=self._page_size, on_change=on_change)

    @property
    def _has_resources(self) -> bool:
        return self.resources.declared or self.templates.declared

    @property
    def has_tasks(self) -> bool:
        """Whether any tool can become a task."""
        return any(tool.handler.task != "never" for tool in self.tools)

    @property
    def has_tasks_of_2025(self) -> bool:
        """Whether any tool, here or in a mounted server, can be called as a task of 2025-11-25."""
        return any(tool.task_support() is not None for tool in self.tools)

    @property
    def serves_tasks(self) -> bool:
        """Whether any tool, here or in a mounted server, can become a task."""
        return self.has_tasks or any(has_some() for has_some in self.tasks_elsewhere)

    def task_support(self, name: str) -> str | None:
        """The tool's `taskSupport` of 2025-11-25; None if it cannot be called as a task."""
        tool = self.tools.get(name)
        return None if tool is None else tool.task_support()

    def _offer(self) -> None:
        """Find out again which capabilities are declared, and so which methods are offered."""
        self._discovery = None
        declared = {
            "tools": self.tools.declared,
            "prompts": self.prompts.declared,
            "resources": self._has_resources,
            "completion": bool(self.completions),
        }
        self.methods.clear()
        self.methods.update(method for method in _METHODS if declared.get(method.partition("/")[0], True))
        self.methods.update(self.extensions.methods())
        self.methods_of_sessions = self.methods - self.extensions.modern_only()

    def has(self, method: str, name: str | None) -> bool:
        """Whether a request names a tool or a prompt that exists."""
        catalogs: dict[str, Catalog[Any]] = {"tools/call": self.tools, "prompts/get": self.prompts}
        return name is not None and method in catalogs and catalogs[method].get(name) is not None

    def find_resource(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        """The resource at a URI, and the variables of its template; None if there is none."""
        resource = self.resources.get(uri)
        if resource is not None:
            return resource, {}
        for resource in (*self.templates, *self.unlisted):
            if resource.template is not None and (values := resource.template.match(uri)) is not None:
                return resource, values
        return None

    def scopes_of(self, uri: str) -> frozenset[str]:
        """The scopes that the resource at a URI needs."""
        found = self.find_resource(uri)
        return frozenset() if found is None else found[0].handler.scopes

    def any_resource(self, uri: str) -> Resource | None:
        """The resource or template registered as `uri`."""
        return self.templates.get(uri) or self.resources.get(uri)

    def describe(self, method: str, name: str) -> tuple[str, str]:
        """The title and the description of what a method calls by this name, for people."""
        found = self.find_resource(name) if method == "resources/read" else None
        catalog: Catalog[Any] = self.prompts if method == "prompts/get" else self.tools
        entry = catalog.get(name) if found is None else found[0]
        definition: JsonObject = {} if entry is None else entry.definition
        return definition.get("title") or name, definition.get("description") or ""

    def grant(self, wanted: Filter) -> Filter:
        """The part of a subscription that this server can serve."""
        offered = {
            "toolsListChanged": self.tools.declared,
            "promptsListChanged": self.prompts.declared,
            "resourcesListChanged": self._has_resources,
        }
        lists = tuple(name for name in wanted.lists if offered[name])
        return Filter(lists, wanted.resources if self._has_resources else ())

    def readable(self, granted: Filter, principal: Principal | None) -> Filter:
        """The part of a subscription that a caller may have."""
        if not self.resources.scopes and not self.templates.scopes:
            return granted
        readable = tuple(uri for uri in granted.resources if grants(principal, self.scopes_of(uri)))
        return Filter(granted.lists, readable)

    def capabilities(self, *, in_sessions: bool = False) -> JsonObject:
        """The server's capabilities as of now, for clients of 2026 or for those with a handshake."""
        declared: JsonObject = {"logging": {}}
        if self.tools.declared:
            declared["tools"] = {"listChanged": True}
        if self.prompts.declared:
            declared["prompts"] = {"listChanged": True}
        if self._has_resources:
            declared["resources"] = {"listChanged": True, "subscribe": True}
        if self.completions:
            declared["completions"] = {}
        if extensions := self.extensions.capabilities(in_sessions=in_sessions):
            declared["extensions"] = extensions
        return declared

    def discovery(self) -> bytes:
        """The discovery result, encoded once and kept until something changes."""
        if self._discovery is None:
            result: JsonObject = {
                "supportedVersions": [*versions.SUPPORTED, *((versions.DRAFT,) if self.speaks_draft else ())],
                "capabilities": self.capabilities(),
                **self._cache.get("server/discover", CacheHint()).fields(),
            }
            if self.instructions is not None:
                result["instructions"] = self.instructions
            self._discovery = self.dialect.result(result)
        return self._discovery

    def declare_all(self) -> None:
        """Declare tools, prompts and resources before there are any: they are yet to be found out."""
        for catalog in (self.tools, self.prompts, self.resources, self.templates):
            catalog.declared = True
        self._offer()

    def find_elsewhere(self, name: str) -> Run | None:
        """Who may answer a call of a tool or prompt that is not registered; None if nobody."""
        for find in self.unknown:
            if (answer := find(name)) is not None:
                return answer
        return None

    def changed(self) -> None:
        """Find out again what is declared, and tell the servers in which this one is mounted."""
        self._offer()
        for follow in tuple(self.followers):
            follow()

    def availability_changed(self) -> None:
        """Say in the lists' `_meta` what is `unavailable` now."""
        meta: JsonObject = {UNAVAILABLE: dict(self.unavailable)} if self.unavailable else {}
        for catalog in (self.tools, self.prompts, self.resources, self.templates):
            catalog.meta = meta
            catalog.forget_pages()
        self.changed()


def unknown_cache_keys(cache: Mapping[str, CacheHint]) -> set[str]:
    """Keys of a `cache=` mapping that are not cacheable lists."""
    return set(cache) - set(_LIST_METHODS)
