from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext

@dataclass
class FastMCPRequestContext:
    _srctx: ServerRequestContext[Any, Any]

fastmcp_request_ctx: ContextVar[FastMCPRequestContext | None]

def bind_request_context(
    ctx: ServerRequestContext[Any, Any],
) -> AbstractContextManager[FastMCPRequestContext]: ...
