from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mcp.server.context import ServerRequestContext
from pydantic import BaseModel

class MethodBinding:
    def __init__(
        self,
        method: str,
        params_type: type[BaseModel],
        handler: Callable[
            [ServerRequestContext[Any, Any], Any], Awaitable[BaseModel | dict[str, Any] | None]
        ],
        protocol_versions: frozenset[str] | None = None,
    ) -> None: ...

class ServerExtension:
    identifier: str

    def methods(self) -> Sequence[MethodBinding]: ...
