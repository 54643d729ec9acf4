"""A server of FastMCP, fourth generation. Run by the interpreter of `.peers/fastmcp`.

    python fastmcp4.py http PORT
    python fastmcp4.py stdio

FastMCP has one way to ask for each era: a handler of the modern era returns what it lacks and is called
again, one of the older era awaits. What it must answer stands in `test_foreign_servers.py`.
"""

import asyncio
import logging
import sys
import warnings
from typing import Any, cast

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from pydantic import BaseModel

warnings.simplefilter("ignore")  # Sampling, roots and logging are deprecated, and here on purpose.
logging.disable(logging.INFO)

server = FastMCP("foreign", version="4.1.2", instructions="Ask for anything.", list_page_size=5)

Asked = types.InputRequiredResult


class Total(BaseModel):
    total: int


class Order(BaseModel):
    quantity: int


class Word(BaseModel):
    value: str


class Number(BaseModel):
    value: int


def modern(ctx: Context) -> bool:
    assert ctx.request_context is not None
    return ctx.request_context.protocol_version == "2026-07-28"


def said(text: str) -> list[types.SamplingMessage]:
    return [types.SamplingMessage(role="user", content=types.TextContent(text=text))]


def sampling(text: str) -> types.CreateMessageRequest:
    params = types.CreateMessageRequestParams(messages=said(text), max_tokens=40)
    return types.CreateMessageRequest(params=params)


def form(message: str, kind: type[BaseModel]) -> types.ElicitRequest:
    params = types.ElicitRequestFormParams(message=message, requested_schema=kind.model_json_schema())
    return types.ElicitRequest(params=params)


async def ask(ctx: Context, **requests: Any) -> dict[str, Any]:
    """Push the questions one after the other, as servers of the older era do."""
    answers: dict[str, Any] = {}
    for key, request in requests.items():
        params = request.params
        if isinstance(request, types.ListRootsRequest):
            answers[key] = await ctx.session.list_roots()
        elif isinstance(request, types.CreateMessageRequest):
            answers[key] = await ctx.session.create_message(
                messages=params.messages, max_tokens=params.max_tokens, related_request_id=ctx.request_id
            )
        elif isinstance(params, types.ElicitRequestURLParams):
            answers[key] = await ctx.session.elicit_url(
                params.message, params.url, key, related_request_id=ctx.request_id
            )
        else:
            answers[key] = await ctx.session.elicit_form(
                params.message, params.requested_schema, related_request_id=ctx.request_id
            )
    return answers


async def answers_to(ctx: Context, **requests: Any) -> dict[str, Any] | Asked:
    """The answers, or the result that asks for them."""
    if not modern(ctx):
        return await ask(ctx, **requests)
    if ctx.input_responses is None:
        return Asked(input_requests=requests)
    return dict(ctx.input_responses)


def uris(answer: types.ListRootsResult) -> str:
    return ", ".join(str(root.uri) for root in answer.roots)


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
        await ctx.report_progress(number, 3, message)
    return "arrived"


@server.tool
async def talks(ctx: Context) -> str:
    """Log on two levels."""
    await ctx.info("a word", logger_name="foreign.talks")
    await ctx.warning("loud", extra={"loud": True})
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


@server.tool
async def changes(ctx: Context) -> str:
    """Tell those who listen that the list of tools changed."""
    await ctx.send_notification(types.ToolListChangedNotification())
    return "changed"


# Tools that ask once


@server.tool
async def order(item: str, ctx: Context) -> Any:
    """Ask the user with a form."""
    answers = await answers_to(ctx, order=form(f"Order {item}?", Order))
    if isinstance(answers, Asked):
        return answers
    answer = answers["order"]
    return f"{item}: {answer.content['quantity'] if answer.action == 'accept' else answer.action}"


@server.tool
async def visit(ctx: Context) -> Any:
    """Ask the user to open a page."""
    params = types.ElicitRequestURLParams(message="Please sign in.", url="https://login.example/start")
    answers = await answers_to(ctx, page=types.ElicitRequest(params=params))
    return answers if isinstance(answers, Asked) else f"visit: {answers['page'].action}"


@server.tool
async def poem(ctx: Context) -> Any:
    """Ask the client's model."""
    answers = await answers_to(ctx, poem=sampling("A haiku"))
    return answers if isinstance(answers, Asked) else answers["poem"].content.text


@server.tool
async def places(ctx: Context) -> Any:
    """Ask for the client's roots."""
    answers = await answers_to(ctx, places=types.ListRootsRequest())
    return answers if isinstance(answers, Asked) else uris(answers["places"])


@server.tool
async def survey(ctx: Context) -> Any:
    """Ask for all three kinds at once."""
    answers = await answers_to(
        ctx, name=form("Your name?", Word), poem=sampling("A haiku"), roots=types.ListRootsRequest()
    )
    if isinstance(answers, Asked):
        return answers
    name, poem, roots = answers["name"], answers["poem"], answers["roots"]
    return f"{name.content['value']} | {poem.content.text} | {uris(roots)}"


# Tools of several rounds


@server.tool
async def journey(ctx: Context) -> Any:
    """Ask three times, each question made of the answers before it."""
    if not modern(ctx):
        city = (await ask(ctx, city=form("Which city?", Word)))["city"].content["value"]
        days = (await ask(ctx, days=form(f"How many days in {city}?", Number)))["days"].content["value"]
        plan = (await ask(ctx, plan=sampling(f"Plan {days} days in {city}.")))["plan"]
        return f"{city}, {days} days: {plan.content.text}"
    answers = cast("dict[str, Any]", ctx.input_responses or {})
    if "city" in answers:
        city = answers["city"].content["value"]
        return Asked(input_requests={"days": form(f"How many days in {city}?", Number)}, request_state=city)
    if "days" in answers:
        days = answers["days"].content["value"]
        asked = sampling(f"Plan {days} days in {ctx.request_state}.")
        return Asked(input_requests={"plan": asked}, request_state=f"{ctx.request_state}, {days} days")
    if "plan" in answers:
        return f"{ctx.request_state}: {answers['plan'].content.text}"
    return Asked(input_requests={"city": form("Which city?", Word)})


@server.tool
async def counts(ctx: Context) -> Any:
    """Keep a state and ask nothing."""
    count = int(ctx.request_state or "0")
    return f"counted to {count}" if count == 2 else Asked(request_state=str(count + 1))


# Prompts and resources


@server.prompt
async def motto() -> str:
    """A prompt without arguments."""
    return "Be on time."


@server.prompt
async def briefing(topic: str, ctx: Context) -> Any:
    """A prompt that asks."""
    answers = await answers_to(ctx, who=form(f"Who reads about {topic}?", Word))
    return answers if isinstance(answers, Asked) else f"Explain {topic} to {answers['who'].content['value']}."


@server.completion
async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
    """Topics by their beginning."""
    return [word for word in ("trains", "trams") if word.startswith(argument.value)]


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
    answers = await answers_to(ctx, password=form(f"The password of {name}?", Word))
    return answers if isinstance(answers, Asked) else f"opened with {answers['password'].content['value']}"


def main(transport: str, port: str = "0") -> None:
    if transport == "http":
        server.run("http", port=int(port), show_banner=False, log_level="warning")
    else:
        server.run("stdio", show_banner=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
