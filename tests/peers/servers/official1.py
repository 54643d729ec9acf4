"""A server of the official Python SDK, first generation. Run by the interpreter of `.peers/mcp1`.

    python official1.py http PORT
    python official1.py stdio

It knows only the older era, in which a handler awaits the answers to requests of its own. What it must
answer stands in `test_foreign_servers.py`.
"""

import asyncio
import sys
from typing import Any

import mcp.types as types
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from pydantic import BaseModel

server = FastMCP(
    "foreign",
    instructions="Ask for anything.",
    log_level="WARNING",
    host="127.0.0.1",
    port=int(sys.argv[2]) if sys.argv[1:2] == ["http"] else 0,
)


class Total(BaseModel):
    total: int


class Order(BaseModel):
    quantity: int


class Word(BaseModel):
    value: str


class Number(BaseModel):
    value: int


async def sampled(ctx: Context, text: str) -> str:
    """What the model says. The request goes out on the stream of the call."""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    answer = await ctx.session.create_message([message], max_tokens=40, related_request_id=ctx.request_id)
    assert isinstance(answer.content, types.TextContent)
    return answer.content.text


async def roots(ctx: Context) -> str:
    """The client's roots. The SDK sends this request on the stream that belongs to no call."""
    return ", ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


async def word(ctx: Context, message: str) -> str:
    answer: Any = await ctx.elicit(message, Word)
    return answer.data.value


# Tools that ask nothing


@server.tool()
async def add(a: int, b: int) -> Total:
    """Add two numbers."""
    return Total(total=a + b)


@server.tool()
async def fails() -> str:
    """Fail in a way that the caller should read."""
    raise ToolError("The ticket office is closed.")


@server.tool()
async def travels(ctx: Context) -> str:
    """Report progress."""
    for number, message in enumerate(("left", "half way", "there"), 1):
        await ctx.report_progress(number, 3, message)
    return "arrived"


@server.tool()
async def talks(ctx: Context) -> str:
    """Log on two levels."""
    await ctx.log("info", "a word", logger_name="foreign.talks")
    await ctx.log("warning", "loud")
    return "said"


abandoned_once = asyncio.Event()


@server.tool()
async def hangs() -> str:
    """Never end, unless the client cancels."""
    try:
        await asyncio.Event().wait()
    finally:
        abandoned_once.set()
    return "never"


@server.tool()
async def abandoned() -> str:
    """Return once `hangs` was cancelled."""
    await abandoned_once.wait()
    return "abandoned"


@server.tool()
async def changes(ctx: Context) -> str:
    """Tell those who listen that the list of tools changed."""
    await ctx.session.send_tool_list_changed()
    return "changed"


# Tools that ask


@server.tool()
async def order(item: str, ctx: Context) -> str:
    """Ask the user with a form."""
    answer: Any = await ctx.elicit(f"Order {item}?", Order)
    return f"{item}: {answer.data.quantity if answer.action == 'accept' else answer.action}"


@server.tool()
async def visit(ctx: Context) -> str:
    """Ask the user to open a page."""
    return f"visit: {(await ctx.elicit_url('Please sign in.', 'https://login.example/start', 'id')).action}"


@server.tool()
async def poem(ctx: Context) -> str:
    """Ask the client's model."""
    return await sampled(ctx, "A haiku")


@server.tool()
async def places(ctx: Context) -> str:
    """Ask for the client's roots."""
    return await roots(ctx)


@server.tool()
async def survey(ctx: Context) -> str:
    """Ask for all three kinds at once."""
    name, haiku, where = await asyncio.gather(word(ctx, "Your name?"), sampled(ctx, "A haiku"), roots(ctx))
    return f"{name} | {haiku} | {where}"


@server.tool()
async def journey(ctx: Context) -> str:
    """Ask three times, each question made of the answers before it."""
    city = await word(ctx, "Which city?")
    days: Any = await ctx.elicit(f"How many days in {city}?", Number)
    plan = await sampled(ctx, f"Plan {days.data.value} days in {city}.")
    return f"{city}, {days.data.value} days: {plan}"


# Prompts and resources


@server.prompt()
async def motto() -> str:
    """A prompt without arguments."""
    return "Be on time."


@server.prompt()
async def briefing(topic: str, ctx: Context) -> str:
    """A prompt that asks."""
    return f"Explain {topic} to {await word(ctx, f'Who reads about {topic}?')}."


@server.completion()
async def complete(ref: Any, argument: types.CompletionArgument, context: Any) -> types.Completion:
    """Topics by their beginning."""
    return types.Completion(values=[word for word in ("trains", "trams") if word.startswith(argument.value)])


@server.resource("note://plain", mime_type="text/plain")
async def plain() -> str:
    """A text."""
    return "plain words"


@server.resource("note://{name}/page", mime_type="text/plain")
async def page(name: str) -> str:
    """A text of somebody's."""
    return f"the page of {name}"


@server.resource("vault://{name}", mime_type="text/plain")
async def vault(name: str, ctx: Context) -> str:
    """A resource that asks."""
    return f"opened with {await word(ctx, f'The password of {name}?')}"


if __name__ == "__main__":
    server.run("streamable-http" if sys.argv[1] == "http" else "stdio")
