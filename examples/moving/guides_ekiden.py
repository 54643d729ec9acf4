"""The tools that the C# SDK's guide and mcpkit's tutorial explain, on ekiden."""

from typing import Any, Literal

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from ekiden import Context, InputRequired, Server

server = Server("guides", store="memory:")

DEGREES = {"celsius": 9, "fahrenheit": 48}


@server.tool
async def confirm(action: str, ctx: Context) -> str:
    """Ask before going on."""
    answer = await ctx.elicit(f"Go on with {action}?", bool)
    return "Confirmed." if answer.action == "accept" and answer.data else "Cancelled."


@server.tool
async def weather(city: str, ctx: Context) -> str:
    """Say how warm it is, in the units that the user likes."""
    units = await ctx.elicit("Which units?", Literal["celsius", "fahrenheit"])
    if units.action != "accept":
        return "No weather without units."
    return f"{city}: {DEGREES[units.data]} {units.data}"


UNITS: dict[str, Any] = {
    "type": "object",
    "properties": {"value": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "required": ["value"],
}


@server.tool
async def weather_by_hand(city: str, ctx: Context) -> str | InputRequired:
    """Say how warm it is, with rounds made by hand."""
    answer = ctx.input_responses.get("units")
    if not isinstance(answer, ElicitResult):
        form = ElicitRequestFormParams(message="Which units?", requested_schema=UNITS)
        return InputRequired({"units": ElicitRequest(params=form)}, request_state="asked")
    if answer.action != "accept" or answer.content is None:
        return "No weather without units."
    units = str(answer.content["value"])
    return f"{city}: {DEGREES[units]} {units}"


@server.tool
async def wizard(ctx: Context) -> str:
    """Ask one thing, and then another."""
    name = await ctx.elicit("What is your name?", str)
    if name.action != "accept":
        return "Another time."
    age = await ctx.elicit(f"Hi {name.data}! How old are you?", int)
    if age.action != "accept":
        return f"Welcome, {name.data}!"
    return f"Welcome, {name.data}! You are {age.data} years old."


async def first_part() -> str:
    return "step 1"


@server.tool
async def later(ctx: Context) -> str:
    """Do a part of the work, and let any process do the rest in another round."""
    done = await ctx.step(first_part)
    await ctx.checkpoint()
    return f"Done: {done}"


async def start(name: str) -> str:
    return f"{name} runs."


@server.tool(task="deferred")
async def start_machine(name: str, ctx: Context) -> str:
    """Ask first; then go on as a task."""
    answer = await ctx.elicit(f"Start {name}? This costs money.", bool)
    if answer.action != "accept" or not answer.data:
        return "Not started."
    await ctx.background()
    return await ctx.step(start, name)


@server.tool
async def where(ctx: Context) -> str:
    """Say where the user works."""
    return ", ".join(str(root.uri) for root in await ctx.list_roots())
