"""The private parts of FastMCP that are used, all of them in this file.

`missing_parts` names those that are gone, so that a release which moved one is told as that.
"""
# ruff: noqa: SLF001

import dataclasses
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final

from fastmcp import Context, FastMCP
from fastmcp.server.context import TransportType, reset_transport, set_transport
from fastmcp.server.dependencies import FastMCPRequestContext, bind_request_context, fastmcp_request_ctx
from fastmcp.tools.base import ToolResult
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server as LowLevelServer
from mcp_types import CallToolResult

from ekiden.engine import Kind

__all__ = [
    "CarriedContext",
    "completion_of",
    "components_of",
    "exact_result",
    "extensions_of",
    "has_own",
    "is_local",
    "lifespan_of",
    "lifespan_result",
    "low_level",
    "masks_errors",
    "missing_carried_parts",
    "missing_parts",
    "page_size_of",
    "perform",
    "request",
    "request_bound",
    "routes_of",
    "security_of",
    "verifying",
]

_OF_FASTMCP: Final = ("_extensions", "_lifespan_result", "_local_provider", "_mcp_server")
_OF_CARRIED: Final = (
    "_additional_http_routes",
    "_completion_handler",
    "_lifespan_manager",
    "_list_page_size",
    "_mask_error_details",
    "_resource_security",
    "_shared_context_snapshot",
)
_PREFIXES: Final[dict[Kind, str]] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "resourceTemplates": "template",
}


def missing_parts(server: Any) -> list[str]:
    """The parts that are used and not there any more, by name."""
    gone = [f"FastMCP.{name}" for name in _OF_FASTMCP if not hasattr(server, name)]
    if not hasattr(getattr(server, "_local_provider", None), "_components"):
        gone.append("LocalProvider._components")
    if "_srctx" not in {field.name for field in dataclasses.fields(FastMCPRequestContext)}:
        gone.append("FastMCPRequestContext._srctx")
    if "_raw_mcp_result" not in ToolResult.__private_attributes__:
        gone.append("ToolResult._raw_mcp_result")
    return gone


def missing_carried_parts(server: Any) -> list[str]:
    """The same, for a server that ekiden serves itself."""
    gone = missing_parts(server)
    gone += [f"FastMCP.{name}" for name in _OF_CARRIED if not hasattr(server, name)]
    if not hasattr(Context, "_is_modern_protocol"):
        gone.append("Context._is_modern_protocol")
    return gone


def low_level(server: FastMCP) -> LowLevelServer[Any]:
    """The server of the official SDK under a FastMCP."""
    return server._mcp_server  # pyright: ignore[reportPrivateUsage]


def verifying(server: FastMCP) -> Callable[[str], Awaitable[AccessToken | None]] | None:
    """What verifies the access tokens of a FastMCP; None if it does not do that itself."""
    return None if server.auth is None else server.auth.verify_token


def extensions_of(server: FastMCP) -> dict[str, Any]:
    """The extensions of a FastMCP, by identifier."""
    return server._extensions  # pyright: ignore[reportPrivateUsage]


def lifespan_result(server: FastMCP) -> object:
    """What the lifespan of a FastMCP yielded."""
    return server._lifespan_result  # pyright: ignore[reportPrivateUsage]


def has_own(server: FastMCP, kind: Kind, key: str) -> bool:
    """Whether a FastMCP has a component of its own under this name, in whichever version."""
    components = server._local_provider._components  # pyright: ignore[reportPrivateUsage]
    return any(name.startswith(f"{_PREFIXES[kind]}:{key}@") for name in components)


def request() -> ServerRequestContext[Any, Any] | None:
    """The request that is being answered, as the official SDK has it; None outside of requests."""
    current = fastmcp_request_ctx.get()
    return None if current is None else current._srctx  # pyright: ignore[reportPrivateUsage]


def exact_result(result: CallToolResult) -> ToolResult:
    """A result that goes out as it is, also if its structured content is not an object."""
    structured: Any = result.structured_content
    shown = ToolResult(
        content=result.content,
        structured_content=structured if isinstance(structured, dict) else None,
        meta=result.meta,
        is_error=bool(result.is_error),
    )
    shown._raw_mcp_result = result  # pyright: ignore[reportPrivateUsage]
    return shown


# A server that ekiden serves itself


def components_of(server: FastMCP) -> list[Any]:
    """The components that a FastMCP has of its own, in all versions."""
    return list(server._local_provider._components.values())  # pyright: ignore[reportPrivateUsage]


def is_local(server: FastMCP, provider: object) -> bool:
    """Whether a provider holds the components that a FastMCP has of its own."""
    return provider is server._local_provider  # pyright: ignore[reportPrivateUsage]


def completion_of(server: FastMCP) -> object:
    """The function of a FastMCP that completes arguments; None if it has none."""
    return server._completion_handler  # pyright: ignore[reportPrivateUsage]


def routes_of(server: FastMCP) -> list[Any]:
    """The HTTP routes beside the endpoint of a FastMCP."""
    return list(server._additional_http_routes)  # pyright: ignore[reportPrivateUsage]


def page_size_of(server: FastMCP) -> int | None:
    """How many definitions a page of a list has."""
    return server._list_page_size  # pyright: ignore[reportPrivateUsage]


def masks_errors(server: FastMCP) -> bool:
    """Whether clients are not told what went wrong in a handler."""
    return server._mask_error_details  # pyright: ignore[reportPrivateUsage]


def security_of(server: FastMCP, template: Any) -> Any:
    """What the variables of a resource template may not contain; None if anything."""
    return template.resolve_security(server._resource_security)  # pyright: ignore[reportPrivateUsage]


def lifespan_of(server: FastMCP) -> AbstractAsyncContextManager[None]:
    """The lifespan of a FastMCP, of its providers and of its extensions."""
    return server._lifespan_manager()  # pyright: ignore[reportPrivateUsage]


async def perform(component: Any, *arguments: Any) -> Any:
    """Run a tool, render a prompt, or read a resource or a template, as a FastMCP itself does."""
    for name in ("_run", "_render", "_read"):
        if (run := getattr(component, name, None)) is not None:
            return await run(*arguments)
    raise TypeError(f"{type(component).__name__} is not a component")


@contextmanager
def request_bound(
    server: FastMCP, request: ServerRequestContext[Any, Any], transport: TransportType
) -> Generator[None, None, None]:
    """Let the dependencies of a FastMCP know which request is answered, and what its lifespan shares."""
    shared: dict[Any, Any] = server._shared_context_snapshot or {}  # pyright: ignore[reportPrivateUsage]
    tokens = [(variable, variable.set(value)) for variable, value in shared.items()]
    over = set_transport(transport)
    try:
        with bind_request_context(request):
            yield
    finally:
        reset_transport(over)
        for variable, token in reversed(tokens):
            variable.reset(token)


class CarriedContext(Context):
    """The context of a call that ekiden serves: it can ask clients of every version."""

    def __init__(self, server: FastMCP, answers: dict[str, Any]) -> None:
        super().__init__(server)
        self._task_input_responses = answers["input_responses"]
        self._task_request_state = answers["request_state"]

    def _is_modern_protocol(self) -> bool:
        return False  # As far as it decides whether somebody can be asked.

    def _input_response_params(self) -> None:
        return None  # Those of the wire are sealed: what was in them is above.
