"""A server of ours, for comparison.

    python ours.py http PORT
    python ours.py stdio

It serves both eras with the same handlers. What it must answer stands in `test_foreign_servers.py`.
"""

import asyncio
import signal
import sys
from typing import Any

from pydantic import BaseModel

from ekiden import Context, InputRequired, Server, ToolError

server = Server(
    "foreign",
    version="0.1.0",
    instructions="Ask for anything.",
    page_size=5,
    keys=[b"the key of a server among others.."],
)


class Total(BaseModel):
    total: int


class Order(BaseModel):
    quantity: int


def text_of(message: Any) -> str:
    return str(message.content.text)


def uris(roots: Any) -> str:
    return ", ".join(str(root.uri) for root in roots)


# Tools that ask nothing


@server.tool
async def add(a: int, b: int) -> Total:
    """Add two numbers."""
    return Total(total=a + b)


@server.tool
async def fails() -> str:
    """Fail in a way that the caller should read."""
    raise ToolError("The ticket office is closed.")


@server.tool
async def travels(ctx: Context) -> str:
    """Report progress."""
    for number, message in enumerate(("left", "half way", "there"), 1):
        await ctx.progress(number, 3, message)
    return "arrived"


@server.tool
async def talks(ctx: Context) -> str:
    """Log on two levels."""
    await ctx.log("info", "a word", logger="foreign.talks")
    await ctx.log("warning", {"loud": True})
    return "said"


abandoned_once = asyncio.Event()


@server.tool
async def hangs() -> str:
    """Never end, unless the client cancels."""
    try:
        await asyncio.Event().wait()
    finally:
        abandoned_once.set()
    return "never"


@server.tool
async def abandoned() -> str:
    """Return once `hangs` was cancelled."""
    await abandoned_once.wait()
    return "abandoned"


late: list[str] = []


@server.tool
async def changes() -> str:
    """Change the list of tools: a tool comes, or goes again."""
    if late:
        server.remove_tool(late.pop())
    else:
        late.append("late")
        server.add_tool(add, name="late")
    return "changed"


# Tools that ask


@server.tool
async def order(item: str, ctx: Context) -> str:
    """Ask the user with a form."""
    answer = await ctx.elicit(f"Order {item}?", Order)
    return f"{item}: {answer.data.quantity if answer.action == 'accept' else answer.action}"


@server.tool
async def visit(ctx: Context) -> str:
    """Ask the user to open a page."""
    return f"visit: {(await ctx.elicit_url('Please sign in.', 'https://login.example/start')).action}"


@server.tool
async def poem(ctx: Context) -> str:
    """Ask the client's model."""
    return text_of(await ctx.sample("A haiku", max_tokens=40))


@server.tool
async def places(ctx: Context) -> str:
    """Ask for the client's roots."""
    return uris(await ctx.list_roots())


@server.tool
async def survey(ctx: Context) -> str:
    """Ask for all three kinds at once."""
    name, haiku, roots = await asyncio.gather(
        ctx.elicit("Your name?", str), ctx.sample("A haiku", max_tokens=40), ctx.list_roots()
    )
    return f"{name.data} | {text_of(haiku)} | {uris(roots)}"


@server.tool
async def journey(ctx: Context) -> str:
    """Ask three times, each question made of the answers before it."""
    city = (await ctx.elicit("Which city?", str)).data
    days = (await ctx.elicit(f"How many days in {city}?", int)).data
    return f"{city}, {days} days: {text_of(await ctx.sample(f'Plan {days} days in {city}.', max_tokens=40))}"


@server.tool
async def counts(ctx: Context) -> str | InputRequired:
    """Keep a state and ask nothing."""
    count = int(ctx.request_state or "0")
    return f"counted to {count}" if count == 2 else InputRequired(request_state=str(count + 1))


# Prompts and resources


@server.prompt
async def motto() -> str:
    """A prompt without arguments."""
    return "Be on time."


@server.prompt
async def briefing(topic: str, ctx: Context) -> str:
    """A prompt that asks."""
    return f"Explain {topic} to {(await ctx.elicit(f'Who reads about {topic}?', str)).data}."


@server.completion(prompt="briefing", argument="topic")
async def complete(value: str) -> list[str]:
    """Topics by their beginning."""
    return [word for word in ("trains", "trams") if word.startswith(value)]


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
    return f"opened with {(await ctx.elicit(f'The password of {name}?', str)).data}"


def main(transport: str, port: str = "0") -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background job starts without it.
    if transport == "http":
        server.run("http", port=int(port), log_level="warning")
    else:
        server.run("stdio")


if __name__ == "__main__":
    main(*sys.argv[1:])
