"""A FastMCP, served by ekiden: its components are run as FastMCP runs them, inside its own `Context`."""

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, cast

import mcp_types as types
from fastmcp import FastMCP
from fastmcp.apps import UI_EXTENSION_ID
from fastmcp.exceptions import FastMCPError, PromptError, ResourceError, ToolError, to_mcp_error
from fastmcp.server.context import TransportType
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.authorization import AuthMiddleware
from fastmcp.server.middleware.dereference import DereferenceRefsMiddleware
from fastmcp.utilities.exceptions import get_http_status_code, is_timeout_error
from fastmcp.utilities.versions import dedupe_with_versions
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ekiden import Context, InvalidParams, ResourceNotFound
from ekiden.engine import Carrier
from ekiden.integrations.carried import calls
from ekiden.integrations.carried.calls import Told
from ekiden.integrations.carried.host import about, cache_of
from ekiden.integrations.inside import fastmcp_parts as parts
from ekiden.integrations.inside import official_parts
from ekiden.integrations.inside.checks import check_parts

__all__ = ["FastMcpHost"]

_log = logging.getLogger(__name__)

_READ: Final = "resources/read"
_AROUND: Final = ("__call__", "_dispatch_handler")
"""Methods of a middleware that see every request, beside its hooks."""


class FastMcpHost:
    """Implements `Host` for a FastMCP."""

    def __init__(self, server: FastMCP) -> None:
        gone = parts.missing_carried_parts(server)
        if not gone:
            gone = official_parts.missing_carried_parts(None, parts.low_level(server))
        check_parts("fastmcp", gone)
        self._server = server
        hint = cache_of(parts.low_level(server), (_READ,)).get(_READ)
        self._hint = {} if hint is None else {"ttlMs": hint.ttl_ms, "cacheScope": hint.scope}

    def about(self) -> dict[str, Any]:
        """What the server says about itself."""
        said = about(parts.low_level(self._server))
        return {"name": self._server.name, **said, "page_size": parts.page_size_of(self._server)}

    def declarations(self) -> dict[str, dict[str, Any]]:
        """Every FastMCP declares pages for apps, which are tools and resources like others."""
        return {UI_EXTENSION_ID: {}}

    def left_behind(self) -> list[str]:
        """What cannot be carried."""
        server = self._server
        lines = [
            f"middleware {type(each).__qualname__}: calls do not pass through it"
            for each in server.middleware
            if not isinstance(each, DereferenceRefsMiddleware)
        ]
        lines += [
            f"provider {each!r}: its components are served, but cannot ask clients of 2026-07-28"
            for each in server.providers
            if not parts.is_local(server, each)
        ]
        lines += [f"custom route {route.path}: it is not served" for route in parts.routes_of(server)]
        lines += [
            f"extension {identifier}: it is not declared, and its methods are not served"
            for identifier in parts.extensions_of(server)
        ]
        if server.experimental_capabilities:
            lines.append(
                f"experimental capabilities {', '.join(server.experimental_capabilities)}: not declared"
            )
        return lines + _of_components(parts.components_of(server))

    def protections(self) -> list[str]:
        """What decides who may call the server."""
        return [] if self._server.auth is None else [type(self._server.auth).__qualname__]

    def guards(self) -> list[str]:
        """FastMCP's middleware for authorization, and whatever else its author has put around requests."""
        return [type(each).__qualname__ for each in self._server.middleware if _guards(each)]

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[Any, None]:
        """The lifespan of the server."""
        async with parts.lifespan_of(self._server):
            yield parts.lifespan_result(self._server)

    @contextmanager
    def listening(self, told: Told) -> Generator[None, None, None]:
        """Nothing tells of changes but the notifications that handlers send."""
        yield

    # Registration

    async def register(self, carrier: Carrier, told: Told) -> None:
        """Register everything that the server has now."""
        server = self._server
        tools = _open(dedupe_with_versions(list(await server.list_tools()), lambda tool: tool.name))
        carrier.tools(
            (calls.dumped(tool.to_mcp_tool(name=tool.name)), self._tool(tool, told), True) for tool in tools
        )
        prompts = _open(dedupe_with_versions(list(await server.list_prompts()), lambda prompt: prompt.name))
        carrier.prompts(self._prompt(prompt, told) for prompt in prompts)
        resources = list(await server.list_resources())
        carrier.resources(
            (calls.dumped(each.to_mcp_resource(uri=str(each.uri))), self._resource(each, told))
            for each in _open(dedupe_with_versions(resources, lambda each: str(each.uri)))
        )
        templates = list(await server.list_resource_templates())
        carrier.templates(
            (
                calls.dumped(each.to_mcp_template(uri_template=each.uri_template)),
                self._template(each, told),
                _Template(server, each),
            )
            for each in _open(dedupe_with_versions(templates, lambda each: each.uri_template))
        )
        carrier.completion(None if parts.completion_of(server) is None else self._completion(told))

    def _tool(self, tool: Any, told: Told) -> Callable[..., Any]:
        async def call(arguments: Mapping[str, Any], ctx: Context[Any]) -> Any:
            try:
                async with self._entered(ctx, told):
                    result = await parts.perform(tool, arguments)
            except Exception as error:
                return self._tool_failure(tool.name, error)
            if (asked := getattr(result, "input_required", None)) is not None:
                return calls.asked_by_hand(asked)
            return _tool_result(result.to_mcp_result())

        return call

    def _tool_failure(self, name: str, error: Exception) -> dict[str, Any]:
        """The result of a tool that raised, in the words of FastMCP."""
        if isinstance(error, MCPError):
            ours = calls.as_ours(error)
            if ours is error.__cause__ or error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY:
                raise ours
        if isinstance(error, ValidationError):
            raise InvalidParams(f"Invalid arguments for tool {name!r}: {error}") from error
        shown = self._shown(error, f"Error calling tool {name!r}", ToolError)
        return {"content": [{"type": "text", "text": str(shown)}], "isError": True}

    def _prompt(self, prompt: Any, told: Told) -> tuple[dict[str, Any], Callable[..., Any]]:
        definition = calls.dumped(prompt.to_mcp_prompt(name=prompt.name))

        async def call(arguments: Mapping[str, Any], ctx: Context[Any]) -> Any:
            calls.require_arguments(definition, arguments)
            with self._translated(f"Error rendering prompt {prompt.name!r}", PromptError):
                async with self._entered(ctx, told):
                    result = await parts.perform(prompt, dict(arguments))
            if (asked := getattr(result, "input_required", None)) is not None:
                return calls.asked_by_hand(asked)
            return calls.dumped(result.to_mcp_prompt_result())

        return definition, call

    def _resource(self, resource: Any, told: Told) -> Callable[..., Any]:
        async def call(arguments: Mapping[str, Any], ctx: Context[Any]) -> Any:
            return await self._read(resource, (), ctx, told)

        return call

    def _template(self, template: Any, told: Told) -> Callable[..., Any]:
        async def call(arguments: Mapping[str, Any], ctx: Context[Any]) -> Any:
            return await self._read(template, (ctx.request.params["uri"], dict(arguments)), ctx, told)

        return call

    async def _read(self, component: Any, arguments: tuple[Any, ...], ctx: Context[Any], told: Told) -> Any:
        uri: str = ctx.request.params["uri"]
        with self._translated(f"Error reading resource {uri!r}", ResourceError):
            async with self._entered(ctx, told):
                result = await parts.perform(component, *arguments)
        if (asked := getattr(result, "input_required", None)) is not None:
            return calls.asked_by_hand(asked)
        return {**calls.dumped(result.to_mcp_result(uri)), **self._hint}

    def _completion(self, told: Told) -> Callable[..., Any]:
        found = parts.low_level(self._server).get_request_handler("completion/complete")
        assert found is not None
        handler = found.handler

        async def complete(params: dict[str, Any], ctx: Context[Any]) -> Any:
            read = types.CompleteRequestParams.model_validate(params)
            with self._translated("Error completing an argument", PromptError):
                async with self._entered(ctx, told):
                    return calls.dumped(await handler(calls.request_context(ctx, told), read))

        return complete

    # One call

    @asynccontextmanager
    async def _entered(self, ctx: Context[Any], told: Told) -> AsyncGenerator[None, None]:
        """The context of FastMCP around a call."""
        request = calls.request_context(ctx, told)
        transport: TransportType = "stdio" if ctx.request.http is None else "streamable-http"
        with parts.request_bound(self._server, request, transport):
            async with parts.CarriedContext(self._server, calls.by_hand(ctx)):
                yield

    @contextmanager
    def _translated(self, what: str, kind: type[FastMCPError]) -> Generator[None, None, None]:
        """Raise errors of a prompt or a resource as those of the protocol."""
        try:
            yield
        except MCPError as error:
            raise calls.as_ours(error) from error
        except Exception as error:
            raise calls.as_ours(to_mcp_error(self._shown(error, what, kind))) from error

    def _shown(self, error: Exception, what: str, kind: type[FastMCPError]) -> Exception:
        """An error as FastMCP shows it to clients; what is not meant for them is logged."""
        if isinstance(error, FastMCPError):
            _log.log(error.log_level, "%s: %s", what, error)
            return error
        status = get_http_status_code(error)
        _log.error("%s", what, exc_info=error if status is None else None)
        if status == 429:
            return kind("Rate limited by upstream API, please retry later")
        if is_timeout_error(error):
            return kind("Upstream request timed out, please retry")
        return kind(what if parts.masks_errors(self._server) else f"{what}: {error}")


def _guards(middleware: object) -> bool:
    """Whether a middleware may refuse callers: those of FastMCP that do other things certainly do not."""
    if isinstance(middleware, AuthMiddleware) or not isinstance(middleware, Middleware):
        return True
    kind = type(middleware)
    hooks = [name for name in dir(middleware) if name.startswith("on_") or name in _AROUND]
    if any(name in vars(middleware) for name in hooks):
        return True
    # The class in which each hook is defined: that of the author, or one of FastMCP.
    owners = [next(each for each in kind.__mro__ if name in vars(each)) for name in hooks]
    return any(owner.__module__.partition(".")[0] not in ("builtins", "fastmcp") for owner in owners)


def _open(components: list[Any]) -> list[Any]:
    """Without those that have a check of their own for who may use them: they are not carried."""
    return [component for component in components if not component.auth]


def _of_components(components: list[Any]) -> list[str]:
    lines: list[str] = []
    versions: dict[tuple[str, str], int] = {}
    for component in components:
        kind = type(component).__name__
        if component.auth:
            lines.append(f"{kind} {component.name!r}: it is left out, for its auth= would not be checked")
        task = getattr(component, "task_config", None)
        if task is not None and task.supports_tasks():
            lines.append(
                f"{kind} {component.name!r}: task= has no effect, its calls are answered when it is done"
            )
        versions[kind, component.name] = versions.get((kind, component.name), 0) + 1
    lines += [
        f"{kind} {name!r}: of its {count} versions only the highest is served"
        for (kind, name), count in versions.items()
        if count > 1
    ]
    return lines


def _tool_result(given: Any) -> dict[str, Any]:
    """What a tool returned, as the wire has it: FastMCP has three shapes for it."""
    if isinstance(given, types.CallToolResult):
        return calls.dumped(given)
    content, structured = cast("tuple[list[Any], Any]", given if isinstance(given, tuple) else (given, None))
    result: dict[str, Any] = {"content": [calls.dumped(block) for block in content], "isError": False}
    if structured is not None:
        result["structuredContent"] = structured
    return result


class _Template:
    """Implements `Matcher` with a template of the server."""

    def __init__(self, server: FastMCP, template: Any) -> None:
        self._template = template
        self._security = parts.security_of(server, template)

    def match(self, uri: str) -> dict[str, Any] | None:
        """The values of its variables; a URI that tries to break out of its place is not found."""
        found: dict[str, Any] | None = self._template.matches(uri)
        if found is not None and self._security is not None and self._security.validate(found) is not None:
            raise ResourceNotFound(uri)
        return found
