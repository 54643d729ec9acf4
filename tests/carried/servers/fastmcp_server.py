"""A server on FastMCP that knows nothing of ekiden, with everything that is carried."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext, Depends, Shared
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_http_headers
from pydantic import BaseModel


@asynccontextmanager
async def lifespan(server: Any) -> AsyncIterator[dict[str, str]]:
    server.tool(late)
    yield {"shop": "open"}


def late() -> str:
    """Registered by the lifespan."""
    return "late"


mcp = FastMCP("shop", version="7", instructions="Be kind.", lifespan=lifespan, mask_error_details=True)


class Confirm(BaseModel):
    ok: bool


def note(word: str) -> None:
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{word} {os.getpid()}\n")


@mcp.tool(
    title="Add numbers",
    annotations={"readOnlyHint": True},
    icons=[types.Icon(src="https://example.org/add.png")],
    tags={"sums"},
    meta={"team": "sums"},
)
async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool
def blocking(word: str) -> str:
    """A plain function."""
    return word.upper()


@mcp.tool
async def refund(order: str, ctx: Context) -> str:
    """Ask twice, and tell how it goes."""
    note(order)
    await ctx.report_progress(1, 3)
    first = await ctx.elicit(f"Refund {order}?", Confirm)
    await ctx.info("working")
    second = await ctx.elicit(f"Really refund {order}?", Confirm)
    await ctx.report_progress(3, 3)
    return f"{first.action}, {second.action}, {ctx.lifespan_context['shop']}, {os.getpid()}"


connections: list[str] = []


def connection() -> str:
    connections.append("opened")
    return f"connection {len(connections)}"


async def agreed(ctx: Context = CurrentContext()) -> str:  # noqa: B008  FastMCP has it written so
    return (await ctx.elicit("Ship it?", Confirm)).action


@mcp.tool
async def depends(
    order: str, ctx: Context, agreed: str = Depends(agreed), shared: str = Shared(connection)
) -> str:
    """What dependencies ask, then a question in the body."""
    last = await ctx.elicit("And now?", Confirm)
    return f"{agreed}, {shared}, {last.action}"


@mcp.tool
async def trip(ctx: Context) -> str:
    """Ask the client's model."""
    words = types.TextContent(type="text", text="Where to?")
    message = types.SamplingMessage(role="user", content=words)
    answer = await ctx.session.create_message([message], max_tokens=10)
    found = await ctx.session.list_roots()
    return f"{answer.content.text}, {found.roots[0].uri}"


@mcp.tool(output_schema=None)
async def by_hand(ctx: Context) -> str | types.InputRequiredResult:
    """Ask by returning the question."""
    if ctx.input_responses is None:
        schema: Any = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
        form = types.ElicitRequestFormParams(message="By hand?", requested_schema=schema)
        return types.InputRequiredResult(
            input_requests={"q": types.ElicitRequest(params=form)}, request_state="first"
        )
    answer = ctx.input_responses["q"]
    return f"{ctx.request_state}, {answer.action}"


@mcp.tool
async def reads(ctx: Context) -> str:
    """Read a resource of the same server."""
    (part,) = (await ctx.read_resource("shop://orders/9")).contents
    return f"{part.content}, {get_http_headers().get('x-test')}"


@mcp.tool
async def fails(how: str) -> str:
    """Fail in one of several ways."""
    if how == "told":
        raise ToolError("no such order")
    raise RuntimeError("a secret")


@mcp.tool
async def visits(ctx: Context) -> int:
    """Count the calls of a session."""
    count = (await ctx.get_state("visits") or 0) + 1
    await ctx.set_state("visits", count)
    return count


@mcp.resource("shop://hours", mime_type="text/plain", title="Hours")
def hours() -> str:
    """When the shop is open."""
    return "nine to five"


@mcp.resource("shop://orders/{number}")
async def order(number: str, ctx: Context) -> str:
    """One order."""
    return f"order {number} of a shop that is {ctx.lifespan_context['shop']}"


@mcp.prompt(title="A letter")
async def letter(name: str, ctx: Context) -> str:
    """Write a letter."""
    answer = await ctx.elicit(f"A letter to {name}?", Confirm)
    return f"Dear {name}: {answer.action}"


@mcp.completion
async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
    return [name for name in ("Aiko", "Akira", "Ben") if name.startswith(argument.value)]


@mcp.tool
async def renew(ctx: Context) -> str:
    """Register another tool while the server runs."""

    async def added() -> str:
        """Registered by another tool."""
        return "added"

    mcp.tool(added)
    await ctx.send_notification(types.ToolListChangedNotification())
    return "renewed"


@mcp.custom_route("/hello", methods=["GET"])
async def hello(request: Any) -> Any:
    raise NotImplementedError  # Routes are not carried, so nobody gets here.


if __name__ == "__main__":
    mcp.run("http")
