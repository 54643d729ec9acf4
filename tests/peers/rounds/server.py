"""A server whose handlers ask, in all the ways there are, for the official clients to answer.

    python server.py http NOTES PORT
    python server.py stdio NOTES

`NOTES` is a file that gets one line for every step that was run. What the server must answer is
written down in `cases.py`.
"""

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp_types import Icon
from pydantic import BaseModel, Field, field_validator

from ekiden import Context, InputRequired, Server

NOTES = Path(sys.argv[2])

# Of everything that versions came to have, something: what a version lacks must not reach its clients.
server = Server(
    "rounds",
    version="1.0.0",
    title="Rounds",
    description="Handlers that ask",
    website_url="https://rounds.example/",
    icons=[Icon(src="https://rounds.example/icon.png")],
    keys=[b"the key of the tests of rounds...."],
)


class Order(BaseModel):
    """A form with a required and an optional field."""

    quantity: Annotated[int, Field(ge=1, le=9, description="How many")]
    gift: bool = False

    @field_validator("quantity")
    @classmethod
    def is_not_seven(cls, quantity: int) -> int:
        """A rule that the schema does not say."""
        if quantity == 7:
            raise ValueError("seven brings bad luck")
        return quantity


# One round


@server.tool(title="Confirm", icons=[Icon(src="https://rounds.example/confirm.png")])
async def confirm(item: str, ctx: Context) -> str:
    """Ask one question."""
    answer = await ctx.elicit(f"Order {item}?", Order)
    if answer.action != "accept":
        return f"{item}: {answer.action}"
    return f"{item}: {answer.data.quantity}, gift {answer.data.gift}"


@server.tool
async def survey(ctx: Context) -> str:
    """Ask the user, the model and the client in one round."""
    name, poem, roots = await asyncio.gather(
        ctx.elicit("Your name?", str), ctx.sample("A haiku", max_tokens=40), ctx.list_roots()
    )
    return f"{name.data} | {text_of(poem)} | {', '.join(str(root.uri) for root in roots)}"


@server.tool
async def poem(ctx: Context) -> str:
    """Ask the model alone."""
    return text_of(await ctx.sample("A sonnet", max_tokens=40))


class Places(BaseModel):
    """A structured result."""

    places: list[str]


@server.tool
async def places(ctx: Context) -> Places:
    """Ask for the roots alone."""
    return Places(places=[str(root.uri) for root in await ctx.list_roots()])


@server.tool
async def twins(ctx: Context) -> str:
    """Ask two questions at once, one of them with a key of the author's."""
    one, other = await asyncio.gather(
        ctx.elicit("Left?", Literal["yes", "no"], key="left"), ctx.elicit("Right?", Literal["yes", "no"])
    )
    return f"left {one.data}, right {other.data}"


@server.tool
async def visit(ctx: Context) -> str:
    """Ask the user to open a page."""
    answer = await ctx.elicit_url("Please sign in.", "https://login.example/start")
    return f"visit: {answer.action}"


# Several rounds


@server.tool
async def journey(ctx: Context) -> str:
    """Ask three times, each question made of the answers before it."""
    city = (await ctx.elicit("Which city?", str)).data
    days = (await ctx.elicit(f"How many days in {city}?", int)).data
    plan = await ctx.sample(f"Plan {days} days in {city}.", max_tokens=100)
    return f"{city}, {days} days: {text_of(plan)}"


@server.tool
async def many(questions: int, ctx: Context) -> str:
    """Ask so many questions, one a round."""
    answers = [(await ctx.elicit(f"Number {number}?", int)).data for number in range(1, questions + 1)]
    return f"the sum is {sum(answer or 0 for answer in answers)}"


@server.tool
async def pay(order: str, ctx: Context) -> str:
    """Do things once although every round starts from the top."""
    total = await ctx.step(charge, order, "reserve")
    first = await ctx.elicit(f"Pay {total}?", bool)
    receipt = await ctx.step(charge, order, "charge")
    second = await ctx.elicit(f"Send receipt {receipt}?", bool)
    await ctx.step(charge, order, "send")
    ctx.on_complete(charge, order, "close")
    return f"paid {first.data}, sent {second.data}, receipt {receipt}"


def charge(order: str, what: str) -> int:
    """A step whose runs can be counted."""
    with NOTES.open("a") as notes:
        notes.write(f"{order} {what}\n")
    return len(what)


@server.tool
async def rests(ctx: Context) -> str:
    """End rounds with state only."""
    one = await ctx.step(charge, "rests", "one")
    await ctx.checkpoint()
    two = await ctx.step(charge, "rests", "three")
    await ctx.checkpoint()
    return f"rested after {one} and {two}"


@server.tool
async def rests_and_asks(ctx: Context) -> str:
    """End a round with state only, then one with a question."""
    await ctx.checkpoint()
    answer = await ctx.elicit("Rested?", bool)
    return f"rested {answer.data}"


# The manual way


def form(message: str) -> dict[str, Any]:
    """A question as the wire spells it."""
    schema = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


@server.tool
async def manual(ctx: Context) -> str | InputRequired:
    """Ask for three kinds at once, then for one more, and keep a state of its own."""
    answers: Any = ctx.input_responses
    if ctx.request_state is None:
        message = {"role": "user", "content": {"type": "text", "text": "Draft"}}
        sampling = {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 9}}
        return InputRequired(
            {"who": form("Who?"), "draft": sampling, "where": {"method": "roots/list"}}, request_state="first"
        )
    if ctx.request_state == "first":
        return InputRequired({"sure": form("Sure?")}, request_state="second")
    who, sure = answers["who"].content["value"], answers["sure"].content["value"]
    return f"{who}, {text_of(answers['draft'])}, {answers['where'].roots[0].uri}, {sure}"


@server.tool
def stateless(ctx: Context) -> str:
    """Ask without a state, in a plain function that raises."""
    answer: Any = ctx.input_responses.get("colour")
    if answer is None:
        raise InputRequired({"colour": form("Which colour?")})
    return f"the colour is {answer.content['value']}, state {ctx.request_state}"


@server.tool
async def counts(ctx: Context) -> str | InputRequired:
    """Keep a state of its own and ask nothing."""
    count = int(ctx.request_state or "0")
    return f"counted to {count}" if count == 2 else InputRequired(request_state=str(count + 1))


# Prompts and resources


@server.prompt
async def briefing(topic: str, ctx: Context) -> str:
    """A prompt that asks."""
    audience = (await ctx.elicit(f"Who reads about {topic}?", str)).data
    return f"Explain {topic} to {audience}."


@server.resource("note://sealed")
async def sealed(ctx: Context) -> str:
    """A resource that asks."""
    word = (await ctx.elicit("The password?", str)).data
    return f"opened with {word}"


@server.resource("note://{name}/sealed")
async def sealed_by_name(name: str, ctx: Context) -> str:
    """A template that asks."""
    word = (await ctx.elicit(f"The password of {name}?", str)).data
    return f"{name}, opened with {word}"


def text_of(message: Any) -> str:
    """The text of a sampled message."""
    return str(message.content.text)


def main(transport: str, port: str = "0") -> None:
    """Serve until stdin ends or a signal comes; the last line of stderr says that this was orderly."""
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background job starts without it.
    if transport == "http":
        server.run("http", port=int(port), log_level="warning")
    else:
        server.run("stdio")
    print("The server ended.", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], *sys.argv[3:])
