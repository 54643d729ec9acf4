"""Durable tools in a FastMCP server.

    from fastmcp import FastMCP
    from ekiden.integrations.fastmcp import Durable

    mcp = FastMCP("shop")
    durable = Durable(mcp, store="sqlite:///shop.db")

    @durable.tool(once=True)
    async def refund(order_id: str, ctx: ekiden.Context) -> str: ...

The server's own tools, middleware, transforms, auth and lifespan stay as they are, and its callers' identity
is the principal of durable calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from ekiden import Principal, UsageError
from ekiden.integrations.inside.checks import require, stable_name
from ekiden.integrations.inside.durable import DurableHandlers, DurableOptions

if TYPE_CHECKING:  # The host is an extra: it is imported when a `Durable` is made.
    from fastmcp import FastMCP
    from mcp.server.context import ServerRequestContext

__all__ = ["Durable"]


class Durable(DurableHandlers):
    """Durable tools, prompts and resources beside those of a FastMCP.

    `store`, `keys`, `seal_store`, `rounds`, `tasks` and `cannot_ask` are those of `ekiden.Server`.
    `audience`, by default the server's name, must be the same in all processes that serve it. `principal` is
    a function from the request's context to whose request it is, by default the identity that the server has
    verified: that is `ctx.principal`, and its scopes count for `scopes=`.
    """

    def __init__(
        self,
        server: FastMCP,
        *,
        principal: Callable[[ServerRequestContext[Any, Any]], Principal | str | None] | None = None,
        **options: Unpack[DurableOptions],
    ) -> None:
        require("fastmcp", (4, 1), 5)
        from fastmcp import FastMCP

        from ekiden.integrations.inside.fastmcp_host import FastMcpHost

        given: object = server
        if not isinstance(given, FastMCP):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may not check types
            raise UsageError(
                f"Durable of ekiden.integrations.fastmcp takes a FastMCP, not {type(given).__name__}; "
                "for MCPServer there is ekiden.integrations.mcp"
            )
        host = FastMcpHost(server)
        super().__init__(host, stable_name(server.name), server.version, options)
        host.install(self, principal)
