"""How durable handlers get into a FastMCP: as the components of a provider, whose lifespan is theirs."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from fastmcp import FastMCP
from fastmcp.prompts.base import Prompt
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.extensions import MethodBinding, ServerExtension
from fastmcp.server.providers.base import Provider
from fastmcp.tools.base import Tool

from ekiden.engine import Kind
from ekiden.integrations.inside import fastmcp_parts as parts
from ekiden.integrations.inside import official_parts
from ekiden.integrations.inside.boundary import boundary_before
from ekiden.integrations.inside.calls import Calls, Identify
from ekiden.integrations.inside.checks import check_parts
from ekiden.integrations.inside.components import DurablePrompt, DurableResource, DurableTemplate, DurableTool
from ekiden.integrations.inside.durable import KEYS, DurableHandlers, check_names
from ekiden.integrations.inside.identity import verified_principal
from ekiden.integrations.inside.task_methods import (
    TASK_METHODS,
    TASKS_EXTENSION,
    TaskParams,
    answer_tasks,
    own_tasks,
)

__all__ = ["FastMcpHost"]

_MAKERS: Final[dict[Kind, Callable[[Calls, dict[str, Any]], Any]]] = {
    "tools": DurableTool.of,
    "prompts": DurablePrompt.of,
    "resources": DurableResource.of,
    "resourceTemplates": DurableTemplate.of,
}


class FastMcpHost:
    """Implements `Host` for a FastMCP."""

    def __init__(self, server: FastMCP) -> None:
        gone = parts.missing_parts(server)
        if not gone:
            gone = official_parts.missing_parts(None, parts.low_level(server))
        check_parts("fastmcp", gone)
        self._server = server
        self._calls: Calls | None = None
        self._tasks: _Tasks | None = None

    def has(self, kind: Kind, key: str) -> bool:
        """Whether the server has such a component of its own."""
        return parts.has_own(self._server, kind, key)

    def check_tasks(self) -> None:
        """Raise if the server has tasks of its own."""
        if parts.extensions_of(self._server).get(TASKS_EXTENSION) is not self._tasks:
            raise own_tasks("an extension of the FastMCP")

    def offer_tasks(self) -> None:
        """Answer the `tasks/` methods."""
        assert self._calls is not None
        if self._tasks is None:
            self._tasks = _Tasks(self._calls)
            self._server.add_extension(self._tasks)

    def install(self, durable: DurableHandlers, principal: Identify | None) -> None:
        """Answer for the durable handlers from now on."""
        self._calls = Calls(
            durable.engine, principal or verified_principal, lambda: parts.verifying(self._server)
        )
        boundary_before(parts.low_level(self._server), self._calls)
        self._server.add_provider(_Handlers(self, durable, self._calls))

    @asynccontextmanager
    async def lifespan(self, durable: DurableHandlers) -> AsyncGenerator[None, None]:
        """Run tasks while the server runs."""
        check_names(durable.engine, self)
        async with durable.running(parts.lifespan_result(self._server)):
            yield


class _Handlers(Provider):
    """The durable handlers as components of the server."""

    def __init__(self, host: FastMcpHost, durable: DurableHandlers, calls: Calls) -> None:
        super().__init__()
        self._host = host
        self._durable = durable
        self._calls = calls
        self._made: dict[tuple[Kind, int], tuple[dict[str, Any], Any]] = {}
        """Components, by their definition: it is the same object as long as nothing is registered anew."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None, None]:
        """Entered inside the server's own lifespan."""
        async with self._host.lifespan(self._durable):
            yield

    def _all(self, kind: Kind) -> list[Any]:
        found: list[Any] = []
        hidden = self._hidden(kind)
        for definition in self._calls.engine.definitions(kind):
            if hidden and definition[KEYS[kind]] in hidden:
                continue
            place = kind, id(definition)
            if place not in self._made:
                self._made[place] = definition, _MAKERS[kind](self._calls, definition)
            found.append(self._made[place][1])
        return found

    def _hidden(self, kind: Kind) -> frozenset[str]:
        """What is not to be seen in the list that is being made: servers around this one may rename it.

        Whoever calls is told what is missing, so that nothing is hidden from calls.
        """
        current = parts.request()
        if current is None or not current.method.endswith("/list"):
            return frozenset()
        return self._calls.engine.hidden(kind, self._calls.principal(current))

    async def _list_tools(self) -> Sequence[Tool]:
        return self._all("tools")

    async def _list_prompts(self) -> Sequence[Prompt]:
        return self._all("prompts")

    async def _list_resources(self) -> Sequence[Resource]:
        return self._all("resources")

    async def _list_resource_templates(self) -> Sequence[ResourceTemplate]:
        return self._all("resourceTemplates")


class _Tasks(ServerExtension):
    """The `tasks/` methods of both eras."""

    identifier = TASKS_EXTENSION

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def methods(self) -> Sequence[MethodBinding]:
        """All of them; which belong to which version, the handler knows."""
        return [MethodBinding(method, TaskParams, answer_tasks(self._calls)) for method in TASK_METHODS]
