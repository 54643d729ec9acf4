"""One server inside another: its lists are part of the outer lists, and requests for it are passed on."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ekiden.errors import ProtocolError, RegistrationError
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.server.endpoint import ServerEndpoint
from ekiden.server.middleware import Run
from ekiden.server.mounting.extensions import check_extensions, pass_extensions
from ekiden.server.mounting.names import Neighbours, Prefix, with_uris
from ekiden.server.registration.catalog import Catalog
from ekiden.server.registration.resources import Resource
from ekiden.server.registration.routed import RoutedPrompt, RoutedResource, RoutedTool, UnlistedResources
from ekiden.server.subscriptions import RESOURCE_UPDATED, Change
from ekiden.server.tasks.news import TaskNews
from ekiden.server.tasks.sources import TaskFeed
from ekiden.transports.server.port import Stream
from ekiden.wire.json import JsonObject, copied, is_object
from ekiden.wire.meta import SERVER_INFO
from ekiden.wire.modern import Request

__all__ = ["Mount"]

_log = logging.getLogger(__name__)

_NAMED: Final = frozenset({"tools/call", "prompts/get"})


class Mount:
    """The way from a server to one that is mounted in it, and back."""

    def __init__(
        self, outer: ServerEndpoint, inner: ServerEndpoint, prefix: Prefix, neighbours: Neighbours
    ) -> None:
        self._outer, self.inner = outer, inner
        self.prefix, self._neighbours = prefix, neighbours
        self._listed: dict[str, set[str]] = {}
        """What of the inner server is in each outer catalog."""
        self._told: set[str] = set()
        """Names that were found to be taken, and reported."""
        self._unavailable: set[str] = set()
        """What is said here to be unavailable because of the inner server."""

    def connect(self) -> None:
        """Begin: what the inner server has is listed, and its changes are followed from now on."""
        outer, inner = self._outer.registry, self.inner.registry
        is_new = self.inner not in self._outer.mounted
        if is_new:
            check_extensions(outer, inner)
        self._list(strict=True)
        if is_new:
            pass_extensions(outer, inner, self.answer)
        self._tell_unavailable()
        inner.followers.append(self._changed)
        outer.completions.elsewhere.append(lambda: bool(inner.completions))
        outer.tasks_elsewhere.append(lambda: inner.serves_tasks)
        outer.unlisted.append(UnlistedResources(self, self.answer))
        outer.unknown.append(self._find)
        outer.hub.inner.append(inner.hub)
        outer.hub.on_watched.append(inner.hub.watched_changed)
        inner.hub.watched_outside.append(self._watched)
        inner.hub.outer.append(self._published)
        self._outer.take_in(self.inner, _Tasks(self))
        outer.changed()

    def _find(self, name: str) -> Run | None:
        """Who answers a call of an unknown name: this, if the inner server knows somebody who may."""
        if not self.prefix.has_name(name) or self._neighbours.other_of_name(name, self.prefix) is not None:
            return None
        inner = self.prefix.inner_name(name)
        return None if self.inner.registry.find_elsewhere(inner) is None else self.answer

    def match(self, uri: str) -> dict[str, str] | None:
        """Implements `Matches` for all URIs that can only be of the inner server."""
        is_here = self.prefix.has_uri(uri) and self._neighbours.other_of_uri(uri, self.prefix) is None
        return {} if is_here else None

    # Lists

    def listed_under(self, prefix: Prefix) -> str | None:
        """A name or URI of the inner server that would belong to another prefix, if that were mounted."""
        if len(prefix.text) <= len(self.prefix.text):
            return None
        outer = self._outer.registry
        named = [key for each in (outer.tools, outer.prompts) for key in self._listed[each.what]]
        located = [key for each in (outer.resources, outer.templates) for key in self._listed[each.what]]
        under = [*filter(prefix.has_name, named), *filter(prefix.has_uri, located)]
        return min(under, default=None)

    def _changed(self) -> None:
        self._list(strict=False)
        self._tell_unavailable()
        self._outer.registry.changed()

    def _list(self, *, strict: bool) -> None:
        outer, inner = self._outer.registry, self.inner.registry
        prefix, answer = self.prefix, self.answer
        tools = [RoutedTool(tool, prefix.name(tool.key), answer, prefix.uri) for tool in inner.tools]
        prompts = [RoutedPrompt(prompt, prefix.name(prompt.key), answer) for prompt in inner.prompts]
        wanted: list[tuple[Catalog[Any], Iterable[Any]]] = [
            (outer.tools, tools),
            (outer.prompts, prompts),
            (outer.resources, map(self._resource, inner.resources)),
            (outer.templates, map(self._resource, inner.templates)),
        ]
        free = [(catalog, self._free(catalog, list(entries), strict=strict)) for catalog, entries in wanted]
        for catalog, entries in free:
            before = self._listed.get(catalog.what, set())
            self._listed[catalog.what] = {entry.key for entry in entries}
            catalog.exchange(before, entries)

    def _resource(self, resource: Resource) -> RoutedResource:
        template = None if resource.template is None else _Inner(self.prefix, resource)
        return RoutedResource(resource, self.prefix.uri(resource.key), template, self.answer)

    def _free(self, catalog: Catalog[Any], entries: list[Any], *, strict: bool) -> list[Any]:
        """The entries whose names are not taken. Others are an error, or later left out and reported."""
        own = self._listed.get(catalog.what, set())
        free: list[Any] = []
        for entry in entries:
            other = self._owner(catalog, entry.key)
            if other is None and (entry.key in own or catalog.get(entry.key) is None):
                free.append(entry)
                continue
            taken = "is registered already" if other is None else f"belongs to the prefix {other.text!r}"
            problem = f"{catalog.what} {entry.key!r} {taken}: mount with another prefix="
            if strict:
                raise RegistrationError(problem)
            if entry.key not in self._told:
                self._told.add(entry.key)
                _log.error("%s; that of the mounted server is left out", problem)
        return free

    def _owner(self, catalog: Catalog[Any], key: str) -> Prefix | None:
        """The prefix of another mounted server that a name or a URI belongs to."""
        registry = self._outer.registry
        if catalog is registry.tools or catalog is registry.prompts:
            return self._neighbours.other_of_name(key, self.prefix)
        return self._neighbours.other_of_uri(key, self.prefix)

    def _tell_unavailable(self) -> None:
        """Name what the inner server cannot reach, under its name here."""
        outer, inner = self._outer.registry, self.inner.registry
        now = {self._called(name): why for name, why in inner.unavailable.items()}
        if now == {name: outer.unavailable.get(name) for name in self._unavailable}:
            return
        for name in self._unavailable:
            outer.unavailable.pop(name, None)
        self._unavailable = set(now)
        outer.unavailable.update(now)
        outer.availability_changed()

    def _called(self, name: str) -> str:
        """What an unavailable server is called here: the inner one is called by its prefix."""
        if not self.prefix.text:
            return name
        is_itself = name == self.inner.registry.server_info["name"]
        return self.prefix.text if is_itself else f"{self.prefix.text}/{name}"

    # Changes

    def _published(self, change: Change, heard: bool) -> None:
        uri = None if change.uri is None else self.prefix.uri(change.uri)
        hub = self._outer.registry.hub
        if heard:
            hub.heard(Change(change.method, uri))
        elif change.method == RESOURCE_UPDATED and uri is not None:
            hub.resource_updated(uri)  # A change of a list changes the outer list, which is told of itself.

    def _watched(self) -> dict[str, set[str]]:
        return {
            owner: {self.prefix.inner_uri(uri) for uri in uris if self.match(uri) is not None}
            for owner, uris in self._outer.registry.hub.watched_by_each().items()
        }

    # Requests

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Have the inner server answer a request."""
        outcome = await self.inner.answer(self._inward(request), stream)
        return self.outward(outcome)

    def _inward(self, request: Request) -> Request:
        """A request as it is spelled for the inner server."""
        params, method = request.params, request.method
        if method in _NAMED:
            name = self.prefix.inner_name(request.name or "")
            return msgspec.structs.replace(request, name=name, params={**params, "name": name})
        if method == "resources/read":
            uri = self.prefix.inner_uri(request.name or "")
            return msgspec.structs.replace(request, name=uri, params={**params, "uri": uri})
        if method == "completion/complete":
            return msgspec.structs.replace(request, params={**params, "ref": self._ref(params["ref"])})
        return request

    def _ref(self, ref: JsonObject) -> JsonObject:
        if ref["type"] == "ref/prompt":
            return {**ref, "name": self.prefix.inner_name(ref["name"])}
        return {**ref, "uri": self.prefix.inner_uri(ref["uri"])}

    def outward(self, outcome: Outcome) -> Outcome:
        """An outcome of the inner server as it is spelled for clients of the outer one."""
        if isinstance(outcome, Failed):
            data = outcome.error.data
            if self.prefix.text and is_object(data) and isinstance(uri := data.get("uri"), str):
                message = outcome.error.message.replace(uri, self.prefix.uri(uri))
                told = {**data, "uri": self.prefix.uri(uri)}
                return Failed(ProtocolError(message, code=outcome.error.code, data=told))
            return outcome
        if not isinstance(outcome, Complete):
            return outcome
        result = outcome.result
        if isinstance(result, bytes):  # Of a task, or an extension's; it is signed by the inner server.
            spelled = outcome.as_dict()
            result = unsigned(spelled)
            if (kind := spelled.get("resultType", "complete")) != "complete":
                result["resultType"] = kind
        if not self.prefix.text:
            return Complete(result)
        return Complete(self.with_uris(result))

    def with_uris(self, result: JsonObject) -> JsonObject:
        """A result, or a task with one, with its URIs as they are spelled here."""
        if is_object(of_task := result.get("result")):
            result = {**result, "result": with_uris(of_task, self.prefix.uri)}
        return with_uris(result, self.prefix.uri)


class _Tasks:
    """The tasks of a mounted server. Implements `ekiden.server.tasks.sources.TaskSource`."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Have the mounted server answer."""
        return self._mount.outward(await self._mount.inner.answer(request, stream))

    async def feeds(self, request: Request, wanted: Sequence[str]) -> Mapping[str, TaskFeed]:
        """Those of these tasks that the mounted server has, and who tells of them."""
        found = await self._mount.inner.task_map.feeds(request, wanted)
        return {task_id: _Feed(self._mount, feed) for task_id, feed in found.items()}


class _Feed:
    """Changes of tasks of a mounted server. Implements `ekiden.server.tasks.sources.TaskFeed`."""

    def __init__(self, mount: Mount, feed: TaskFeed) -> None:
        self._mount = mount
        self.watch = feed.watch
        self._news = feed.news

    async def news(self, task_id: str) -> TaskNews | None:
        """The state of a task, with its URIs as they are spelled outside."""
        news = await self._news(task_id)
        return None if news is None else TaskNews(self._mount.with_uris(copied(news.params)))


class _Inner:
    """A template of the inner server, for URIs as they are spelled outside."""

    def __init__(self, prefix: Prefix, resource: Resource) -> None:
        self._prefix = prefix
        self._template = resource.template

    def match(self, uri: str) -> dict[str, str] | None:
        """Implements `Matches`."""
        if self._template is None or uri != self._prefix.uri(inner := self._prefix.inner_uri(uri)):
            return None
        return self._template.match(inner)


def unsigned(result: JsonObject) -> JsonObject:
    """A result without its type, and without the name of the server that it comes from."""
    kept = {name: value for name, value in result.items() if name != "resultType"}
    if is_object(meta := kept.get("_meta")) and SERVER_INFO in meta:
        left = {name: value for name, value in meta.items() if name != SERVER_INFO}
        kept["_meta"] = left
        if not left:
            del kept["_meta"]
    return kept
