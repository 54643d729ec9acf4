"""How durable handlers get into an `MCPServer`.

Requests are answered where the host's own handlers are, so that all middleware of the host is around them,
whenever it was added, and so are the interceptors of its extensions.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from mcp.server.context import HandlerResult
from mcp.server.extension import compose_tool_call_handler
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from ekiden.engine import Engine, Kind
from ekiden.integrations.inside import official_parts as parts
from ekiden.integrations.inside.boundary import boundary_before
from ekiden.integrations.inside.calls import Calls, HostContext, Identify
from ekiden.integrations.inside.checks import check_parts
from ekiden.integrations.inside.durable import DurableHandlers, check_names
from ekiden.integrations.inside.identity import verified_principal
from ekiden.integrations.inside.task_methods import (
    TASK_METHODS,
    TASKS_EXTENSION,
    TaskParams,
    answer_tasks,
    own_tasks,
)

__all__ = ["McpServerHost"]

_TARGETS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_LISTS: Final[dict[str, Kind]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


class McpServerHost:
    """Implements `Host` for an `MCPServer`."""

    def __init__(self, server: MCPServer[Any]) -> None:
        low = getattr(server, "_lowlevel_server", None)
        check_parts("mcp", parts.missing_parts(server, low))
        self._server = server
        self._low = parts.low_level(server)
        self._calls: Calls | None = None

    # Registration

    def has(self, kind: Kind, key: str) -> bool:
        """Whether the server has such a component of its own."""
        return parts.has_own(self._server, kind, key)

    def check_tasks(self) -> None:
        """Raise if the server has tasks of its own."""
        assert self._calls is not None
        is_served = TASKS_EXTENSION in self._low.extensions or any(
            map(self._low.get_request_handler, TASK_METHODS)
        )
        if is_served and not self._calls.engine.has_tasks:
            raise own_tasks("an extension of the MCPServer")

    def offer_tasks(self) -> None:
        """Answer the `tasks/` methods."""
        assert self._calls is not None
        self._low.extensions.setdefault(TASKS_EXTENSION, {})
        for method in TASK_METHODS:
            self._low.add_request_handler(method, TaskParams, answer_tasks(self._calls))

    # Serving

    def install(self, durable: DurableHandlers, principal: Identify | None) -> None:
        """Answer for the durable handlers from now on."""
        self._calls = calls = Calls(
            durable.engine, principal or verified_principal, lambda: parts.verifying(self._server)
        )
        boundary_before(self._low, calls)
        for method, field in _TARGETS.items():
            self._wrap_calls(calls, method, field)
        for method, kind in _LISTS.items():
            self._wrap_list(calls.engine, method, kind)
        self._low.lifespan = self._lifespan(durable, self._low.lifespan)

    def _wrap_calls(self, calls: Calls, method: str, field: str) -> None:
        theirs = self._low.get_request_handler(method)
        assert theirs is not None

        async def perform(ctx: HostContext, params: Any) -> HandlerResult:
            return await calls.perform(ctx, method, ctx.params or {})

        ours: Callable[[HostContext, Any], Awaitable[HandlerResult]] = perform
        if method == "tools/call":
            ours = compose_tool_call_handler(parts.extensions_of(self._server), perform)

        async def either(ctx: HostContext, params: Any) -> HandlerResult:
            is_ours = calls.engine.serves(method, str(getattr(params, field)))
            return await (ours if is_ours else theirs.handler)(ctx, params)

        self._low.add_request_handler(method, theirs.params_type, either)

    def _wrap_list(self, engine: Engine, method: str, kind: Kind) -> None:
        theirs = self._low.get_request_handler(method)
        assert theirs is not None

        async def both(ctx: HostContext, params: Any) -> HandlerResult:
            listed = await theirs.handler(ctx, params)
            page: dict[str, Any] = (
                listed.model_dump(by_alias=True, mode="json", exclude_none=True)
                if isinstance(listed, BaseModel)
                else dict(listed or {})
            )
            if page.get("nextCursor") is None:  # Ours come after the last page of the host's.
                page[kind] = [*page.get(kind, ()), *engine.definitions(kind, ctx.protocol_version)]
            return page

        self._low.add_request_handler(method, theirs.params_type, both)

    def _lifespan(self, durable: DurableHandlers, theirs: Callable[..., Any]) -> Callable[..., Any]:
        @asynccontextmanager
        async def both(server: LowLevelServer[Any]) -> AsyncGenerator[Any, None]:
            check_names(durable.engine, self)
            async with theirs(server) as state, durable.running(state):
                yield state

        return both
