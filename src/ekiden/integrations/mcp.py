"""Durable tools in an `MCPServer` of the official SDK.

    from mcp.server.mcpserver import MCPServer
    from ekiden.integrations.mcp import Durable

    server = MCPServer("shop")
    durable = Durable(server, store="sqlite:///shop.db")

    @durable.tool(once=True)
    async def refund(order_id: str, ctx: ekiden.Context) -> str: ...

The server's own tools, middleware, auth and lifespan stay as they are, and its callers' identity is the
principal of durable calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from ekiden import Principal, UsageError
from ekiden.integrations.inside.checks import require
from ekiden.integrations.inside.durable import DurableHandlers, DurableOptions

if TYPE_CHECKING:  # The host is an extra: it is imported when a `Durable` is made.
    from mcp.server.context import ServerRequestContext
    from mcp.server.mcpserver import MCPServer

__all__ = ["Durable"]


class Durable(DurableHandlers):
    """Durable tools, prompts and resources beside those of an `MCPServer`.

    `store`, `keys`, `seal_store`, `rounds`, `tasks` and `cannot_ask` are those of `ekiden.Server`.
    `audience`, by default the server's name, must be the same in all processes that serve it. `principal` is
    a function from the request's context to whose request it is, by default the identity that the server has
    verified: that is `ctx.principal`, and its scopes count for `scopes=`.
    """

    def __init__(
        self,
        server: MCPServer[Any],
        *,
        principal: Callable[[ServerRequestContext[Any, Any]], Principal | str | None] | None = None,
        **options: Unpack[DurableOptions],
    ) -> None:
        require("mcp", (2, 3), 3)
        from mcp.server.mcpserver import MCPServer

        from ekiden.integrations.inside.mcpserver import McpServerHost

        given: object = server
        if not isinstance(given, MCPServer):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may not check types
            raise UsageError(
                f"Durable of ekiden.integrations.mcp takes an MCPServer, not {type(given).__name__}; "
                "for FastMCP there is ekiden.integrations.fastmcp"
            )
        host = McpServerHost(server)
        super().__init__(host, server.name, server.version, options)
        host.install(self, principal)
