"""The private parts of FastMCP that are used, all of them in this file.

`missing_parts` names those that are gone, so that a release which moved one is told as that.
"""
# ruff: noqa: SLF001

import dataclasses
from typing import Any, Final

from fastmcp import FastMCP
from fastmcp.server.dependencies import FastMCPRequestContext, fastmcp_request_ctx
from fastmcp.tools.base import ToolResult
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server as LowLevelServer
from mcp_types import CallToolResult

from ekiden.engine import Kind

__all__ = [
    "exact_result",
    "extensions_of",
    "has_own",
    "lifespan_result",
    "low_level",
    "missing_parts",
    "request",
]

_OF_FASTMCP: Final = ("_extensions", "_lifespan_result", "_local_provider", "_mcp_server")
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


def low_level(server: FastMCP) -> LowLevelServer[Any]:
    """The server of the official SDK under a FastMCP."""
    return server._mcp_server  # pyright: ignore[reportPrivateUsage]


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
