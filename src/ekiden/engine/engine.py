"""`Engine`: a server's handlers, answered request by request, without a transport."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, TypeAlias

from ekiden.engine import requests
from ekiden.engine.admission import Lasting
from ekiden.errors import ProtocolError, UsageError
from ekiden.rounds.outcome import Dialect, Outcome
from ekiden.server.registration.catalog import Catalog
from ekiden.server.registration.results import after_handshake
from ekiden.server.sealing.keys import is_token
from ekiden.server.server import Server
from ekiden.server.subscriptions import Change
from ekiden.tasks.view import created_view, view
from ekiden.transports.server.port import Stream
from ekiden.wire import tasks, versions
from ekiden.wire.headers import Headers
from ekiden.wire.json import JsonObject, decode, is_object
from ekiden.wire.jsonrpc import RequestId
from ekiden.wire.legacy import Legacy
from ekiden.wire.meta import SERVER_INFO
from ekiden.wire.modern import Request
from ekiden.wire.principal import Principal, grants

__all__ = ["Engine", "Kind"]

Kind: TypeAlias = Literal["tools", "prompts", "resources", "resourceTemplates"]
"""A kind of definitions, by the name of the field that lists them."""

_LEVEL: Final = "info"
"""The log level of a client of 2025 that has not set one."""


class Engine:
    """The handlers of a server, for whoever brings the requests and takes the results."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._endpoint = server.endpoint
        self._dialects: dict[str, Legacy] = {version: Legacy(version) for version in versions.LEGACY}
        for dialect in self._dialects.values():
            dialect.task_support = self._endpoint.registry.task_support

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the lifespan entered and tasks running while the block runs. Blocks may overlap."""
        return self._endpoint.in_use()

    # One request

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        request_id: RequestId | None = None,
        version: str = versions.MODERN,
        capabilities: Mapping[str, Any] | None = None,
        client_info: Mapping[str, Any] | None = None,
        log_level: str = _LEVEL,
        headers: Headers | None = None,
        session: str | None = None,
        principal: Principal | str | None = None,
        lasting: Lasting | None = None,
    ) -> Request:
        """A request out of wire parameters, or the `ProtocolError` that it deserves.

        A client of 2026-07-28 says everything in the `_meta` of its parameters. For a client of 2025, pass
        the `version` that was agreed on, and the `capabilities` and `client_info` of its `initialize`.
        `principal` is whose request it is, as `ctx.principal` has it; a text is its subject. With
        `Server(principal=principal_of)`, states and tasks are bound to it. `lasting`, made by the function of
        that name, ends a subscription with the access token that it came with.
        """
        message, who = requests.with_id(request_id, method, params), requests.identity(principal)
        if version == versions.MODERN:
            request = requests.modern(message, self._endpoint.methods, headers, session, who)
            request.watched = lasting
            return request
        if version not in self._dialects:
            raise UsageError(
                f"version={version!r} must be one of {', '.join((versions.MODERN, *self._dialects))}"
            )
        client = (capabilities or {}, client_info or {})
        return requests.after_handshake(message, version, client, log_level, headers, session, who)

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer one request. Raises nothing but cancellation."""
        return await self._endpoint.answer(request, stream)

    def result(self, request: Request, outcome: Outcome) -> JsonObject:
        """An outcome as the result that the client's version knows; raises it if it is an error.

        It is not signed with the server's name: the host has its own.
        """
        version = request.meta.protocol_version
        dialect: Dialect = self._endpoint.dialect if version == versions.MODERN else self._dialects[version]
        if version != versions.MODERN:
            outcome = after_handshake(outcome, request.method)
        response: JsonObject = decode(outcome.render(dialect, request.id))
        if is_object(error := response.get("error")):
            raise ProtocolError(error["message"], code=error["code"], data=error.get("data"))
        result: JsonObject = response["result"]
        if is_object(meta := result.get("_meta")):
            meta.pop(SERVER_INFO, None)
            if not meta:
                del result["_meta"]
        return result

    # What is registered

    def definitions(self, kind: Kind, version: str = versions.MODERN) -> list[JsonObject]:
        """How everything of one kind is listed for clients of a version, in the order of registration."""
        listed: list[JsonObject] = [entry.definition for entry in self._catalog(kind)]
        if version == versions.MODERN:
            return listed
        spelled: list[JsonObject] = self._dialects[version].result({kind: listed})[kind]
        return spelled

    def definition(self, kind: Kind, key: str, version: str = versions.MODERN) -> JsonObject | None:
        """How one of them is listed, by its name or URI; None if nothing is registered under it."""
        entry = self._catalog(kind).get(key)
        if entry is None or version == versions.MODERN:
            return None if entry is None else entry.definition
        spelled: list[JsonObject] = self._dialects[version].result({kind: [entry.definition]})[kind]
        return spelled[0]

    def hidden(self, kind: Kind, principal: Principal | str | None) -> frozenset[str]:
        """The names and URIs that a principal is not to see in lists: it lacks their `scopes`."""
        who = requests.identity(principal)
        return frozenset(entry.key for entry in self._catalog(kind) if not grants(who, entry.handler.scopes))

    def _catalog(self, kind: Kind) -> Catalog[Any]:
        registry = self._endpoint.registry
        catalogs: dict[str, Catalog[Any]] = {
            "tools": registry.tools,
            "prompts": registry.prompts,
            "resources": registry.resources,
            "resourceTemplates": registry.templates,
        }
        return catalogs[kind]

    def serves(self, method: str, target: str) -> bool:
        """Whether a tool, a prompt or a URI is registered here, for `tools/call` and its like."""
        registry = self._endpoint.registry
        if method == "tools/call":
            return registry.tools.get(target) is not None
        if method == "prompts/get":
            return registry.prompts.get(target) is not None
        return method == "resources/read" and (
            registry.resources.get(target) is not None
            or any(
                resource.template is not None and resource.template.match(target) is not None
                for resource in registry.templates
            )
        )

    @property
    def has_tasks(self) -> bool:
        """Whether any tool can become a task."""
        return self._endpoint.registry.has_tasks

    def task_methods(self, version: str) -> tuple[str, ...]:
        """The `tasks/` methods to be answered in a version; none if no tool can become a task."""
        if not self.has_tasks:
            return ()
        if version == versions.MODERN:
            return tasks.METHODS
        return (*tasks.LEGACY_METHODS, tasks.LIST_METHOD) if version in versions.WITH_TASKS else ()

    def task_capabilities(self, version: str, *, has_principal: bool = False) -> JsonObject:
        """What a server declares whose tools can become tasks. Only a principal's own tasks are listed."""
        if not self.task_methods(version):
            return {}
        if version == versions.MODERN:
            return {"extensions": {tasks.EXTENSION: {}}}
        declared: JsonObject = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        if has_principal:
            declared["list"] = {}
        return {"tasks": declared}

    @staticmethod
    def is_token(text: object) -> bool:
        """Whether a `requestState` begins like one of ours; whether it is genuine, `answer` finds out."""
        return isinstance(text, str) and is_token(text)

    # Changes

    async def task_changes(
        self, task_id: str, version: str = versions.MODERN
    ) -> AsyncGenerator[JsonObject, None]:
        """The states of a task, as a version has them: the current one, then every other until it has ended.

        Whether the task may be seen is for the caller to know.
        """
        kept = self._endpoint.tasks
        if kept is None:
            return
        waiting = _Waiting()
        kept.add_listener(task_id, waiting)
        seen: JsonObject | None = None
        try:
            while (glance := await kept.store.glance(task_id)) is not None:
                record = glance.record
                if version == versions.MODERN:
                    spelled = tasks.as_dict(view(record))
                else:
                    spelled = tasks.legacy_task(created_view(record), tool_failed=record.tool_failed)
                if spelled != seen:
                    yield spelled
                    seen = spelled
                if record.final:
                    return
                await waiting.change()
        finally:
            kept.remove_listener(task_id, waiting)


class _Waiting:
    """A listener that is woken by every change of a task, from any thread."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._wake: Callable[[Callable[[], object]], object] = asyncio.get_running_loop().call_soon_threadsafe

    def offer(self, change: Change) -> None:
        """Something changed."""
        self._wake(self._changed.set)

    async def change(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()
        self._changed.clear()
