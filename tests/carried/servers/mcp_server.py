"""A server of the official SDK that knows nothing of ekiden, with everything that is carried."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve
from pydantic import BaseModel


@asynccontextmanager
async def lifespan(server: Any) -> AsyncIterator[dict[str, str]]:
    server.add_tool(late)
    yield {"shop": "open"}


def late() -> str:
    """Registered by the lifespan."""
    return "late"


server = MCPServer("shop", title="The shop", version="7", instructions="Be kind.", lifespan=lifespan)


class Confirm(BaseModel):
    ok: bool


def note(word: str) -> None:
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{word} {os.getpid()}\n")


@server.tool(
    title="Add numbers",
    annotations=types.ToolAnnotations(read_only_hint=True),
    icons=[types.Icon(src="https://example.org/add.png")],
    meta={"team": "sums"},
)
async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def blocking(word: str) -> str:
    """A plain function."""
    return word.upper()


@server.tool()
async def refund(order: str, ctx: Context[Any]) -> str:
    """Ask twice, and tell how it goes."""
    note(order)
    await ctx.report_progress(1, 3)
    first = await ctx.elicit(f"Refund {order}?", Confirm)
    await ctx.info("working")
    second = await ctx.elicit(f"Really refund {order}?", Confirm)
    await ctx.report_progress(3, 3)
    shop = ctx.request_context.lifespan_context["shop"]
    return f"{first.action}, {second.action}, {shop}, {os.getpid()}"


async def confirmed(order: str) -> Elicit[Confirm]:
    return Elicit(f"Ship {order}?", Confirm)


async def roots() -> ListRoots:
    return ListRoots()


@server.tool()
async def depends(
    order: str,
    ctx: Context[Any],
    agreed: Annotated[Confirm, Resolve(confirmed)],
    where: Annotated[types.ListRootsResult, Resolve(roots)],
) -> str:
    """What resolvers ask, then a question in the body."""
    last = await ctx.elicit("And now?", Confirm)
    return f"{agreed.ok}, {where.roots[0].uri}, {last.action}"


@server.tool()
async def trip(ctx: Context[Any]) -> str:
    """Ask the client's model."""
    words = types.TextContent(type="text", text="Where to?")
    message = types.SamplingMessage(role="user", content=words)
    answer = await ctx.session.create_message([message], max_tokens=10)
    found = await ctx.session.list_roots()
    return f"{answer.content.text}, {found.roots[0].uri}"


@server.tool()
async def by_hand(ctx: Context[Any]) -> str | types.InputRequiredResult:
    """Ask by returning the question."""
    if ctx.input_responses is None:
        schema: Any = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
        form = types.ElicitRequestFormParams(message="By hand?", requested_schema=schema)
        return types.InputRequiredResult(
            input_requests={"q": types.ElicitRequest(params=form)}, request_state="first"
        )
    answer = ctx.input_responses["q"]
    return f"{ctx.request_state}, {answer.action}"


@server.tool()
async def reads(ctx: Context[Any]) -> str:
    """Read a resource of the same server."""
    (part,) = await ctx.read_resource("shop://orders/9")
    headers = ctx.headers or {}
    return f"{part.content}, {headers.get('x-test')}"


@server.tool()
async def fails(how: str) -> str:
    """Fail in one of several ways."""
    if how == "told":
        raise ToolError("no such order")
    raise RuntimeError("a secret")


@server.resource("shop://hours", mime_type="text/plain", title="Hours")
def hours() -> str:
    """When the shop is open."""
    return "nine to five"


@server.resource("shop://orders/{number}")
async def order(number: str, ctx: Context[Any]) -> str:
    """One order."""
    return f"order {number} of a shop that is {ctx.request_context.lifespan_context['shop']}"


@server.prompt(title="A letter")
async def letter(name: str, ctx: Context[Any]) -> str:
    """Write a letter."""
    answer = await ctx.elicit(f"A letter to {name}?", Confirm)
    return f"Dear {name}: {answer.action}"


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
    names = [name for name in ("Aiko", "Akira", "Ben") if name.startswith(argument.value)]
    return types.Completion(values=names)


@server.tool()
async def renew(ctx: Context[Any]) -> str:
    """Register another tool while the server runs."""

    async def added() -> str:
        """Registered by another tool."""
        return "added"

    server.add_tool(added)
    await ctx.notify_tools_changed()
    return "renewed"


@server.custom_route("/hello", methods=["GET"])
async def hello(request: Any) -> Any:
    raise NotImplementedError  # Routes are not carried, so nobody gets here.


if __name__ == "__main__":
    server.run("streamable-http")
