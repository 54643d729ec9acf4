"""An `MCPServer` of the official SDK, served by ekiden: requests are answered by its own handlers."""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final

import mcp_types as types
from mcp.server.extension import Extension
from mcp.server.mcpserver import Context as HostContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.resources.templates import ResourceSecurityError
from mcp.server.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError

from ekiden import Context, InputRequired, ResourceNotFound
from ekiden.engine import Carrier
from ekiden.integrations.carried import calls
from ekiden.integrations.carried.calls import Told
from ekiden.integrations.carried.host import about, cache_of, module_of, name_of
from ekiden.integrations.inside import official_parts as parts
from ekiden.integrations.inside.checks import check_parts

__all__ = ["OfficialHost"]

_log = logging.getLogger(__name__)

_PARAMS: Final[dict[str, type[Any]]] = {
    "tools/call": types.CallToolRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "completion/complete": types.CompleteRequestParams,
}
_READ: Final = "resources/read"


class OfficialHost:
    """Implements `Host` for an `MCPServer`."""

    def __init__(self, server: MCPServer[Any]) -> None:
        check_parts("mcp", parts.missing_carried_parts(server, getattr(server, "_lowlevel_server", None)))
        self._server = server
        self._low = parts.low_level(server)
        theirs = Extension.intercept_tool_call
        extensions: list[Extension] = parts.extensions_of(server)
        self._intercepted = any(type(each).intercept_tool_call is not theirs for each in extensions)
        hint = cache_of(self._low, (_READ,)).get(_READ)
        self._hint = {} if hint is None else {"ttlMs": hint.ttl_ms, "cacheScope": hint.scope}
        self._nobody: HostContext[Any, Any] = HostContext(mcp_server=server)
        """The context for tools that cannot look at it."""

    def about(self) -> dict[str, Any]:
        """What the server says about itself."""
        return {"name": self._server.name, **about(self._low)}

    def declarations(self) -> dict[str, dict[str, Any]]:
        """The settings of its extensions that have no methods: their tools and interceptors are carried."""
        extensions = parts.extensions_of(self._server)
        return {each.identifier: each.settings() for each in extensions if not each.methods()}

    def left_behind(self) -> list[str]:
        """What cannot be carried."""
        lines = [f"middleware {name}: calls do not pass through it" for name in self.guards()]
        lines += [f"custom route {route.path}: it is not served" for route in parts.routes_of(self._server)]
        lines += [
            f"extension {each.identifier}: it is not declared, and its methods are not served"
            for each in parts.extensions_of(self._server)
            if each.methods()
        ]
        return lines

    def protections(self) -> list[str]:
        """What decides who may call the server."""
        return [type(each).__qualname__ for each in parts.protections_of(self._server)]

    def guards(self) -> list[str]:
        """All middleware but the SDK's own: it sees every request."""
        own = [each for each in self._low.middleware if module_of(each).partition(".")[0] != "mcp"]
        return [name_of(each) for each in own]

    def lifespan(self) -> AbstractAsyncContextManager[Any]:
        """The lifespan of the server."""
        return parts.lifespan_of(self._server)

    @contextmanager
    def listening(self, told: Told) -> Generator[None, None, None]:
        """Be told of changes, which handlers publish with `ctx.notify_...`."""
        telling: set[asyncio.Task[None]] = set()

        def listener(event: object) -> None:
            method = "notifications/resources/updated" if isinstance(event, ResourceUpdated) else ""
            work: Any = told(method, {"uri": getattr(event, "uri", "")})
            task = asyncio.get_running_loop().create_task(work)
            telling.add(task)
            task.add_done_callback(telling.discard)

        unsubscribe = parts.bus_of(self._server).subscribe(listener)
        try:
            yield
        finally:
            unsubscribe()

    # Registration

    async def register(self, carrier: Carrier, told: Told) -> None:
        """Register everything that the server has now."""
        server, tools, templates = (
            self._server,
            parts.tools_of(self._server),
            parts.templates_of(self._server),
        )
        carrier.tools(
            self._tool(calls.dumped(each), tools[each.name], told) for each in await server.list_tools()
        )
        carrier.prompts(
            (definition, self._prompt(definition, told))
            for definition in map(calls.dumped, await server.list_prompts())
        )
        carrier.resources(
            (calls.dumped(each), self._resource(told)) for each in await server.list_resources()
        )
        carrier.templates(
            (calls.dumped(each), self._resource(told), _Template(templates[each.uri_template]))
            for each in await server.list_resource_templates()
        )
        completes = self._low.get_request_handler("completion/complete") is not None
        carrier.completion(self._completion(told) if completes else None)

    def _tool(
        self, definition: dict[str, Any], tool: Any, told: Told
    ) -> tuple[dict[str, Any], Callable[..., Any], bool]:
        name, is_resolved = tool.name, bool(tool.resolved_params)
        if tool.context_kwarg is None and not is_resolved and not self._intercepted:
            return definition, self._plain_tool(name), False

        async def call(arguments: Mapping[str, Any], ctx: Context[Any]) -> Any:
            asked = calls.by_hand(ctx)
            while True:
                result = await self._answer(ctx, told, name=name, arguments=arguments, **asked)
                if not isinstance(result, types.InputRequiredResult):
                    return calls.dumped(result)
                if not is_resolved:
                    return calls.asked_by_hand(result)
                asked = await calls.answers_to(ctx, result)

        return definition, _raising_ours(call), True

    def _plain_tool(self, name: str) -> Callable[..., Any]:
        """A tool that has no context and no resolvers: nothing of the request is made for it."""
        call_tool, nobody = self._server.call_tool, self._nobody

        async def call(arguments: dict[str, Any]) -> Any:
            try:
                return calls.dumped(await call_tool(name, arguments, nobody))
            except MCPError:
                raise
            except Exception as error:
                return _failure(name, error)

        return _raising_ours(call)

    def _prompt(self, definition: dict[str, Any], told: Told) -> Callable[..., Any]:
        async def call(arguments: Mapping[str, Any], ctx: Context[Any]) -> Any:
            calls.require_arguments(definition, arguments)
            asked = calls.by_hand(ctx)
            result = await self._answer(ctx, told, name=definition["name"], arguments=arguments, **asked)
            return _final(result)

        return _raising_ours(call)

    def _resource(self, told: Told) -> Callable[..., Any]:
        async def call(arguments: Mapping[str, Any], ctx: Context[Any]) -> Any:
            result = await self._answer(ctx, told, uri=ctx.request.params["uri"], **calls.by_hand(ctx))
            final = _final(result)
            return final if isinstance(final, InputRequired) else {**final, **self._hint}

        return _raising_ours(call)

    def _completion(self, told: Told) -> Callable[..., Any]:
        async def complete(params: dict[str, Any], ctx: Context[Any]) -> Any:
            return calls.dumped(await self._answer(ctx, told, **_completion_params(params)))

        return _raising_ours(complete)

    async def _answer(self, ctx: Context[Any], told: Told, **params: Any) -> Any:
        """Have the server's own handler answer a request."""
        method = ctx.request.method
        found = self._low.get_request_handler(method)
        assert found is not None
        return await found.handler(
            calls.request_context(ctx, told), _PARAMS[method].model_construct(**params)
        )


def _completion_params(params: dict[str, Any]) -> dict[str, Any]:
    read = types.CompleteRequestParams.model_validate(params)
    return {"ref": read.ref, "argument": read.argument, "context": read.context}


def _final(result: Any) -> Any:
    """The result of a handler, or what it asks by hand."""
    if isinstance(result, types.InputRequiredResult):
        return calls.asked_by_hand(result)
    return calls.dumped(result)


def _failure(name: str, error: Exception) -> dict[str, Any]:
    """The result of a tool that raised, in the words of its SDK; a crash is logged."""
    if isinstance(error, UnexpectedToolError) or not isinstance(error, ToolError):
        _log.error("Tool %r raised", name, exc_info=error)
    return {"content": [{"type": "text", "text": str(error)}], "isError": True}


def _raising_ours(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose errors of the protocol are ekiden's."""

    async def guarded(**keywords: Any) -> Any:
        try:
            return await call(**keywords)
        except MCPError as error:
            raise calls.as_ours(error) from error

    return guarded


class _Template:
    """Implements `Matcher` with a template of the server."""

    def __init__(self, template: Any) -> None:
        self._template = template

    def match(self, uri: str) -> dict[str, Any] | None:
        """The values of its variables; a URI that tries to break out of its place is not found."""
        try:
            found: dict[str, Any] | None = self._template.matches(uri)
        except ResourceSecurityError:
            raise ResourceNotFound(uri) from None
        return found
