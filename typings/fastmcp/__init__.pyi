"""What ekiden.integrations uses of FastMCP, which is not installed where types are checked."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

from fastmcp.server.extensions import ServerExtension
from fastmcp.server.providers.base import Provider
from fastmcp.server.providers.local_provider import LocalProvider
from mcp.server.lowlevel import Server

F = TypeVar("F", bound=Callable[..., Any])

class FastMCP:
    name: str
    version: str | None
    _extensions: dict[str, Any]
    _lifespan_result: object
    _local_provider: LocalProvider
    _mcp_server: Server[Any]

    def __init__(self, name: str | None = None, **options: Any) -> None: ...
    def add_extension(self, extension: ServerExtension) -> None: ...
    def add_provider(self, provider: Provider, *, namespace: str = "") -> None: ...
    @overload
    def tool(self, function: F, **options: Any) -> F: ...
    @overload
    def tool(self, name: str | None = None, **options: Any) -> Callable[[F], F]: ...
    def __getattr__(self, name: str) -> Any: ...

def __getattr__(name: str) -> Any: ...
