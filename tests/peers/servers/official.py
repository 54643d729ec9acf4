"""A server of the official Python SDK, second generation. Run by the interpreter of `.peers/mcp`.

    python official.py http PORT
    python official.py stdio

It serves both eras. Where the SDK has one way to ask that works in both (`Resolve`), that is used; where
it has none, the handler looks at the version. What it must answer stands in `test_foreign_servers.py`.
"""

import asyncio
import sys
import warnings
from typing import Annotated, Any, cast

import mcp_types as types
from mcp.server.mcpserver import (
    AcceptedElicitation,
    Context,
    Elicit,
    ElicitationResult,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

warnings.simplefilter("ignore")  # Sampling, roots and logging are deprecated, and here on purpose.

server = MCPServer("foreign", version="2.3.0", instructions="Ask for anything.", log_level="WARNING")


class Total(BaseModel):
    total: int


class Order(BaseModel):
    quantity: int


class Word(BaseModel):
    value: str


class Number(BaseModel):
    value: int


def modern(ctx: Context) -> bool:
    return ctx.protocol_version == "2026-07-28"


def said(text: str) -> list[types.SamplingMessage]:
    return [types.SamplingMessage(role="user", content=types.TextContent(text=text))]


def text_of(message: types.CreateMessageResult) -> str:
    assert isinstance(message.content, types.TextContent)
    return message.content.text


def form(message: str, kind: type[BaseModel]) -> types.ElicitRequest:
    params = types.ElicitRequestFormParams(message=message, requested_schema=kind.model_json_schema())
    return types.ElicitRequest(params=params)


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
    await ctx.log("warning", {"loud": True})
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
    if modern(ctx):
        await ctx.notify_tools_changed()
    else:
        await ctx.session.send_tool_list_changed()
    return "changed"


# Tools that ask once


async def ask_order(item: str) -> Elicit[Order]:
    return Elicit(f"Order {item}?", Order)


@server.tool()
async def order(item: str, answer: Annotated[ElicitationResult[Order], Resolve(ask_order)]) -> str:
    """Ask the user with a form."""
    return f"{item}: {answer.data.quantity if isinstance(answer, AcceptedElicitation) else answer.action}"


@server.tool()
async def visit(ctx: Context) -> str | types.InputRequiredResult:
    """Ask the user to open a page."""
    message, url = "Please sign in.", "https://login.example/start"
    if not modern(ctx):
        return f"visit: {(await ctx.elicit_url(message, url, 'sign-in')).action}"
    if ctx.input_responses is None:
        page = types.ElicitRequest(params=types.ElicitRequestURLParams(message=message, url=url))
        return types.InputRequiredResult(input_requests={"page": page})
    return f"visit: {cast('types.ElicitResult', ctx.input_responses['page']).action}"


async def ask_poem() -> Sample:
    return Sample(said("A haiku"), max_tokens=40)


@server.tool()
async def poem(answer: Annotated[types.CreateMessageResult, Resolve(ask_poem)]) -> str:
    """Ask the client's model."""
    return text_of(answer)


async def ask_places() -> ListRoots:
    return ListRoots()


@server.tool()
async def places(answer: Annotated[types.ListRootsResult, Resolve(ask_places)]) -> str:
    """Ask for the client's roots."""
    return ", ".join(str(root.uri) for root in answer.roots)


async def ask_name() -> Elicit[Word]:
    return Elicit("Your name?", Word)


@server.tool()
async def survey(
    name: Annotated[Word, Resolve(ask_name)],
    haiku: Annotated[types.CreateMessageResult, Resolve(ask_poem)],
    roots: Annotated[types.ListRootsResult, Resolve(ask_places)],
) -> str:
    """Ask for all three kinds at once."""
    return f"{name.value} | {text_of(haiku)} | {', '.join(str(root.uri) for root in roots.roots)}"


# Tools of several rounds


async def ask_city() -> Elicit[Word]:
    return Elicit("Which city?", Word)


async def ask_days(city: Annotated[Word, Resolve(ask_city)]) -> Elicit[Number]:
    return Elicit(f"How many days in {city.value}?", Number)


async def ask_plan(
    city: Annotated[Word, Resolve(ask_city)], days: Annotated[Number, Resolve(ask_days)]
) -> Sample:
    return Sample(said(f"Plan {days.value} days in {city.value}."), max_tokens=100)


@server.tool()
async def journey(
    city: Annotated[Word, Resolve(ask_city)],
    days: Annotated[Number, Resolve(ask_days)],
    plan: Annotated[types.CreateMessageResult, Resolve(ask_plan)],
) -> str:
    """Ask three times, each question made of the answers before it."""
    return f"{city.value}, {days.value} days: {text_of(plan)}"


@server.tool()
async def counts(ctx: Context) -> str | types.InputRequiredResult:
    """Keep a state and ask nothing."""
    count = int(ctx.request_state or "0")
    return f"counted to {count}" if count == 2 else types.InputRequiredResult(request_state=str(count + 1))


# Prompts and resources


@server.prompt()
async def motto() -> str:
    """A prompt without arguments."""
    return "Be on time."


@server.prompt()
async def briefing(topic: str, ctx: Context) -> Any:
    """A prompt that asks."""
    message = f"Who reads about {topic}?"
    if not modern(ctx):
        answer = await ctx.elicit(message, Word)
        return f"Explain {topic} to {cast('Any', answer).data.value}."
    if ctx.input_responses is None:
        return types.InputRequiredResult(input_requests={"who": form(message, Word)})
    content = cast("types.ElicitResult", ctx.input_responses["who"]).content or {}
    return f"Explain {topic} to {content['value']}."


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
async def vault(name: str, ctx: Context) -> Any:
    """A resource that asks."""
    message = f"The password of {name}?"
    if not modern(ctx):
        return f"opened with {cast('Any', await ctx.elicit(message, Word)).data.value}"
    if ctx.input_responses is None:
        return types.InputRequiredResult(input_requests={"password": form(message, Word)})
    content = cast("types.ElicitResult", ctx.input_responses["password"]).content or {}
    return f"opened with {content['value']}"


def main(transport: str, port: str = "0") -> None:
    if transport == "http":
        server.run("streamable-http", port=int(port))
    else:
        server.run("stdio")


if __name__ == "__main__":
    main(*sys.argv[1:])
