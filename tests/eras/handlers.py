"""A server whose handlers ask in every way; the same code for clients of all ages."""

import asyncio
from typing import Annotated, Any, Literal

from mcp_types import Icon, ResourceLink, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from ekiden import Context, InputRequired, Server

KEY = b"a key of at least thirty-two bytes!"


class Name(BaseModel):
    name: Annotated[str, Field(min_length=2)]


class Sum(BaseModel):
    total: int


ICON = Icon(src="https://example.com/icon.png", mime_type="image/png")


def question(message: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def make_server(**options: Any) -> Server:
    server = Server(
        "eras",
        version="1.0",
        title="All eras",
        description="Serves everybody",
        website_url="https://example.com",
        icons=[ICON],
        instructions="Ask away.",
        **{"keys": [KEY], **options},
    )
    add_plain(server)
    add_read(server)
    add_asking(server)
    add_other_ways(server)
    add_manual(server)
    return server


def add_plain(server: Server) -> None:
    @server.tool(
        title="Adds",
        icons=[ICON],
        annotations=ToolAnnotations(title="Adds", read_only_hint=True),
        meta={"com.example/x": 1},
    )
    async def add(a: int, b: int) -> Sum:
        """Add two numbers."""
        return Sum(total=a + b)

    @server.tool
    async def number() -> int:
        """Give a number."""
        return 42

    @server.tool
    async def link() -> list[ResourceLink | TextContent]:
        """Link to a resource."""
        return [ResourceLink(name="paper", title="The paper", uri="eras://paper", icons=[ICON])]

    @server.tool
    async def tell(ctx: Context) -> str:
        """Report progress and log."""
        for number in (1, 2):
            await ctx.progress(number, 2, "going on")
        await ctx.log("debug", "small")
        await ctx.log("warning", {"big": True}, logger="eras")
        return "told"

    @server.tool
    async def wait(ctx: Context) -> str:
        """Wait to be cancelled."""
        await ctx.progress(1, 2)
        await asyncio.Event().wait()
        return "never"

    @server.tool(
        input_schema={"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "R"}}}
    )
    async def mirrored(arguments: dict[str, Any]) -> str:
        """Take an argument that clients of 2026 mirror."""
        return str(arguments.get("region"))


def add_read(server: Server) -> None:
    @server.resource("eras://paper", title="The paper", icons=[ICON], mime_type="text/plain")
    async def paper() -> str:
        """A paper."""
        return "words"

    @server.resource("eras://page/{number}", mime_type="text/plain")
    async def page(number: int) -> str:
        """A page."""
        return f"page {number}"

    @server.prompt(title="Greets", icons=[ICON])
    async def greet(who: Annotated[str, Field(title="Who")]) -> str:
        """Greet somebody."""
        return f"Hello, {who}"

    @server.completion(prompt="greet", argument="who")
    async def complete_who(value: str) -> list[str]:
        return [name for name in ("Ann", "Anna", "Bob") if name.startswith(value)]


def add_asking(server: Server) -> None:
    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask the user's name."""
        answer = await ctx.elicit("What is your name?", Name)
        return f"{answer.action} {answer.data.name}" if answer.action == "accept" else answer.action

    @server.tool
    async def ask_three(ctx: Context) -> str:
        """Ask the user, the model and the client at once."""
        name, idea, roots = await asyncio.gather(
            ctx.elicit("What is your name?", Name), ctx.sample("Say hi", max_tokens=10), ctx.list_roots()
        )
        who = name.data.name if name.action == "accept" else "nobody"
        said = " ".join(block.text for block in idea.content_as_list if isinstance(block, TextContent))
        return f"{who} {said} {','.join(str(root.uri) for root in roots)}"

    @server.tool
    async def ask_thrice(ctx: Context) -> str:
        """Ask three times, with a step, a checkpoint and drawn values in between."""
        said: list[str] = []
        noted: list[int] = []

        async def note(number: int) -> int:
            noted.append(number)
            return number

        for number in range(3):
            await ctx.step(note, number)
            await ctx.checkpoint()
            ctx.uuid(), ctx.random(), ctx.now()
            answer = await ctx.elicit(f"Question {number}", Name)
            said.append(answer.data.name if answer.action == "accept" else answer.action)
        await ctx.sleep(0)
        return " ".join(said)


def add_other_ways(server: Server) -> None:
    @server.tool
    async def open_page(ctx: Context) -> str:
        """Send the user to a page."""
        return (await ctx.elicit_url("Please log in", "https://example.com/login")).action

    @server.tool
    async def choose(ctx: Context) -> str:
        """Ask with choices."""

        class Choice(BaseModel):
            color: Literal["red", "blue"] = "red"
            extras: list[Literal["a", "b"]] | None = None

        return (await ctx.elicit("Choose", Choice)).action

    @server.tool
    async def era(ctx: Context) -> str:
        """Tell what the wire can do."""
        return f"{ctx.supports_rounds} {ctx.can_ask('elicitation')} {ctx.can_ask('elicitation.url')}"

    @server.tool(asks=["sampling"])
    async def declared(ctx: Context) -> str:
        """Need the client's model."""
        return "ran"

    @server.prompt
    async def ask_prompt(ctx: Context) -> str:
        """Ask before the prompt is written."""
        answer = await ctx.elicit("What about?", Name)
        return f"Write about {answer.data.name if answer.action == 'accept' else 'nothing'}"

    @server.resource("eras://asked/{number}", mime_type="text/plain")
    async def asked(number: int, ctx: Context) -> str:
        """A resource that asks."""
        answer = await ctx.elicit("Which?", Name)
        return f"{number} {answer.action}"


def add_manual(server: Server) -> None:
    @server.tool
    async def manual(ctx: Context) -> InputRequired | str:
        """Keep the state by hand, over three rounds, one of them without questions."""
        if ctx.request_state is None:
            return InputRequired({"one": question("First?")}, "asked one")
        if ctx.request_state == "asked one":
            return InputRequired(request_state="rest")
        if ctx.request_state == "rest":
            return InputRequired({"two": question("Second?"), "three": {"method": "roots/list"}}, "asked two")
        given = ctx.input_responses
        return f"{given['one'].content['name']} {given['two'].content['name']} {len(given['three'].roots)}"

    @server.tool
    def manual_thread(ctx: Context) -> InputRequired | str:
        """The same in a thread, without state."""
        if "name" not in ctx.input_responses:
            return InputRequired({"name": question("Name?")})
        return str(ctx.input_responses["name"].content["name"])

    @server.tool
    async def endless(ctx: Context) -> InputRequired | str:
        """Never be done."""
        return InputRequired(request_state=f"{ctx.request_state or ''}x")


if __name__ == "__main__":
    import os

    make_server(experimental_protocol_version=os.environ.get("DRAFT") or None).run("stdio")
