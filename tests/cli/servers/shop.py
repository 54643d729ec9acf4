"""A server for the tests of the command line: tools that ask for everything, fail, take long, and paint."""

import asyncio
import os
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp_types import AudioContent, ImageContent, TextContent
from pydantic import BaseModel, Field

from ekiden import Context, Server

server = Server("shop", version="1.2.3")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Speed(Enum):
    FAST = "fast"
    SLOW = "slow"

    @property
    def label(self) -> str:
        return {"fast": "Fast as an arrow", "slow": "Slow but sure"}[self.value]


class Order(BaseModel):
    name: Annotated[str, Field(min_length=2, title="Your name")]
    seats: Annotated[int, Field(ge=1, le=4, description="how many")] = 2
    price: Annotated[float, Field(ge=0)] | None = None
    email: Annotated[str, Field(json_schema_extra={"format": "email"})]
    day: Annotated[str, Field(json_schema_extra={"format": "date"})] | None = None
    speed: Annotated[Speed, Field(title="How fast")] = Speed.FAST
    extras: Annotated[list[Literal["meal", "window", "quiet"]], Field(min_length=1)]
    insured: bool
    member: bool | None = None


@server.tool
async def order(ctx: Context) -> Any:
    """Ask with every kind of field."""
    answer = await ctx.elicit("What may it be?", Order, key="what")
    if answer.action != "accept":
        return f"{answer.action}d"
    return answer.data.model_dump(mode="json", exclude_none=True)


@server.tool
async def confirm(ctx: Context) -> str:
    """Ask one thing."""
    answer = await ctx.elicit("Is that \x1b]0;evil\x07\x1b[31mred\x1b[0m all right?", bool, key="sure")
    return f"{answer.action}: {answer.data}"


@server.tool
async def name_it(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("A name for it?", str, key="name")
    return f"{answer.action}: {answer.data}"


@server.tool
async def two_at_once(ctx: Context) -> str:
    """Ask two things in one round."""
    one, other = await asyncio.gather(
        ctx.elicit("First of all?", str, key="first"), ctx.elicit("And then?", str, key="second")
    )
    return f"{one.data} {other.data}"


@server.tool
async def visit(ctx: Context) -> str:
    """Send the user to a page."""
    answer = await ctx.elicit_url("Please log in.", "https://user@rail.example/login?next=1", key="login")
    return str(answer.action)


@server.tool
async def plan(ctx: Context) -> str:
    """Ask the model and for the roots."""
    idea, roots = await asyncio.gather(ctx.sample("One sight in Nara?", max_tokens=30), ctx.list_roots())
    sight = " ".join(block.text for block in idea.content_as_list if block.type == "text")
    return f"{sight} in {[str(root.uri) for root in roots]}"


async def pid(number: int) -> int:
    return os.getpid()


@server.tool
async def ten_rounds(ctx: Context) -> list[int]:
    """Ask ten times; the processes that served the rounds."""
    served: list[int] = []
    for number in range(10):
        served.append(await ctx.step(pid, number))
        await ctx.elicit(f"Round {number}?", bool)
    return served


@server.tool
async def typed(
    text: str,
    number: float = 0,
    count: int = 0,
    flag: bool = False,
    tags: list[str] | None = None,
    data: dict[str, Any] | None = None,
    either: int | str | None = None,
) -> dict[str, Any]:
    """Give the arguments back."""
    given = {"text": text, "number": number, "count": count, "flag": flag}
    return {"given": {**given, "tags": tags, "data": data, "either": either}}


@server.tool
async def rows() -> list[dict[str, Any]]:
    """A table."""
    return [{"city": "Hakone", "celsius": 9}, {"city": "Tokyo", "celsius": 18, "note": "sunny"}]


@server.tool
async def paint() -> list[TextContent | ImageContent | AudioContent]:
    """A picture and a sound."""
    return [
        TextContent(type="text", text="Here they are."),
        ImageContent(type="image", data=PIXEL, mime_type="image/png"),
        AudioContent(type="audio", data="UklGRg==", mime_type="audio/wav"),
    ]


@server.tool
async def fail() -> str:
    """Fail."""
    from ekiden import ToolError

    raise ToolError("There is nothing left.")


@server.tool
async def chat() -> str:
    """Print in the server."""
    print("printed in the server")
    return "said"


@server.tool
async def take_long(marks: str, ctx: Context) -> str:
    """Report progress, then wait to be cancelled; leaves a mark when it began and when it ended."""
    await ctx.progress(1, 4, "a quarter done")
    Path(marks, "began").touch()
    try:
        await asyncio.Event().wait()
    finally:
        Path(marks, "cancelled").touch()
    return "never"


@server.resource("shop://{item}", mime_type="text/plain")
async def item(item: str) -> str:
    """An item."""
    return item


@server.resource("shop://opening-hours", mime_type="text/plain")
async def hours() -> str:
    """When the shop is open."""
    return "always"


@server.prompt
async def recommend(what: str, style: str = "short") -> str:
    """Ask for a recommendation."""
    return f"Recommend a {what}, {style}"


if __name__ == "__main__":
    server.run("stdio")
