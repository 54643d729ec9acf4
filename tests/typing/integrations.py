"""What a type checker sees of `ekiden.engine` and of the integrations. Checked by pyright, never run."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

from ekiden import Context, Outcome, Principal, Request, Server
from ekiden.engine import Engine, HostStream, principal_of
from ekiden.integrations.fastmcp import Durable as InFastMCP
from ekiden.integrations.mcp import Durable

durable = Durable(MCPServer("shop"), store="sqlite:///shop.db", keys=[b"secret"])
inside = InFastMCP(FastMCP("shop"), principal=lambda ctx: Principal("aiko"))
InFastMCP(MCPServer("shop"))  # pyright: ignore[reportArgumentType]
Durable(FastMCP("shop"))  # pyright: ignore[reportArgumentType]


@durable.tool
async def plain(a: int) -> str:
    return str(a)


@inside.tool(once=True, task="deferred", scopes=["refunds"])
async def refund(order_id: str, ctx: Context) -> str:
    return order_id


@durable.resource("shop://{number}")
async def order(number: str) -> bytes:
    return number.encode()


kept: Callable[[int], Coroutine[Any, Any, str]] = plain
changed: Callable[[int], Coroutine[Any, Any, int]] = plain  # pyright: ignore[reportAssignmentType]
also_kept: Callable[[str, Context], Coroutine[Any, Any, str]] = refund
durable.tool(once="sometimes")  # pyright: ignore[reportArgumentType]


async def notify(method: str, params: dict[str, Any]) -> None:
    """Send a notification."""


async def use_engine() -> None:
    engine = Engine(Server("shop", principal=principal_of))
    request = engine.request("tools/call", {"name": "refund"}, principal="aiko")
    assert_type(request, Request)
    outcome = await engine.answer(request, HostStream(request, notify))
    assert_type(outcome, Outcome)
    assert_type(engine.result(request, outcome), dict[str, Any])
    async for state in engine.task_changes("1", "2025-11-25"):
        assert_type(state, dict[str, Any])
    engine.definitions("tool")  # pyright: ignore[reportArgumentType]
