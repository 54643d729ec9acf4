"""A server that offers one of everything, for the official clients to list and call.

    python server.py http PORT
    python server.py stdio

What it must answer is written down in `test_official_clients.py`.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from typing import Annotated, Any

import mcp_types as types
from pydantic import BaseModel, Field

from ekiden import CacheHint, Context, Server, ToolError

PIXEL = "iVBORw0KGgo="
SOUND = "UklGRiQAAAA="

server = Server(
    "station",
    version="1.2.3",
    title="The station",
    description="One of everything",
    website_url="https://station.example/",
    icons=[types.Icon(src="https://station.example/icon.png", mime_type="image/png", sizes=["48x48"])],
    instructions="Ask for anything.",
    cache={"tools/list": CacheHint(ttl_ms=60_000, scope="public")},
    page_size=2,
)


# Tools: every kind of content


@server.tool(
    title="Text",
    annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True),
    meta={"example.org/colour": "blue"},
)
async def text(name: str, times: int = 1) -> str:
    """Greet somebody.

    Args:
        name: Who is greeted.
        times: How often.
    """
    return " ".join([f"Grüße, {name}!"] * times)


@server.tool
async def image() -> types.ImageContent:
    """An image."""
    return types.ImageContent(data=PIXEL, mime_type="image/png")


@server.tool
async def audio() -> types.AudioContent:
    """A sound."""
    return types.AudioContent(data=SOUND, mime_type="audio/wav")


@server.tool
async def embedded() -> types.EmbeddedResource:
    """A resource inside the result."""
    contents = types.TextResourceContents(uri="note://inside", mime_type="text/plain", text="inside")
    return types.EmbeddedResource(resource=contents)


@server.tool
async def link() -> types.ResourceLink:
    """A link to a resource."""
    return types.ResourceLink(
        uri="note://plain", name="plain", description="The plain note", mime_type="text/plain", size=13
    )


@server.tool
async def everything() -> list[types.ContentBlock | str]:
    """All kinds of content at once."""
    blob = types.BlobResourceContents(uri="note://blob", mime_type="application/x-blob", blob="AAEC")
    annotations = types.Annotations(audience=["user"], priority=0.5)
    return [
        "bare",
        types.TextContent(text="annotated", annotations=annotations),
        await image(),
        await audio(),
        types.EmbeddedResource(resource=blob),
        await link(),
    ]


@server.tool
async def nothing() -> None:
    """No content at all."""


# Tools: structured output


class Train(BaseModel):
    """A train."""

    number: int
    stops: list[str] = Field(description="In the order of travel")
    delay: float | None = None


@server.tool
async def train(number: int) -> Train:
    """A model as structured output."""
    return Train(number=number, stops=["Ōmiya", "Sendai"])


@server.tool
async def platforms() -> list[int]:
    """A list as structured output."""
    return [1, 2, 3]


# Tools: failures


@server.tool
async def refuses() -> str:
    """Fail in a way that the caller should read."""
    raise ToolError("The ticket office is closed.")


@server.tool
async def breaks() -> str:
    """Fail in a way that the caller should not read."""
    raise RuntimeError("a secret of the author's")


# Tools: what happens around a call


@server.tool
def blocking(number: int) -> str:
    """A plain function: it runs in a thread of its own."""
    where = "the main" if threading.current_thread() is threading.main_thread() else "another"
    return f"{number * 2} from {where} thread"


_arrival = asyncio.Event()


@server.tool
async def travels(ctx: Context) -> str:
    """Report progress, with and without a total and a message; end once `arrives` is called."""
    await ctx.progress(1)
    await ctx.progress(1.5, 3)
    await ctx.progress(1.5, 3, "does not grow and is dropped")
    await ctx.progress(3, 3, "there")
    await _arrival.wait()
    return "arrived"


@server.tool
async def arrives() -> str:
    """Let `travels` end: the client has seen its progress while it was running."""
    _arrival.set()
    return "stop"


@server.tool
async def talks(topic: str, ctx: Context) -> str:
    """Log on several levels."""
    await ctx.log("debug", f"{topic}: detail", logger="station.talks")
    await ctx.log("info", {"topic": topic}, logger="station.talks")
    await ctx.log("warning", f"{topic}: end")
    return topic


@server.tool
async def routed(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
    ctx: Context,
    track: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Track"})] = 0,
) -> dict[str, str | None]:
    """Parameters that are mirrored into HTTP headers, and the headers that came."""
    headers = ctx.request.headers or {}
    names = ("mcp-name", "mcp-param-region", "mcp-param-track")
    return {name: value.decode() if (value := headers.get(name.encode())) else None for name in names}


@server.tool
async def caller(ctx: Context) -> dict[str, Any]:
    """What the request says about its client."""
    return {
        "version": ctx.meta.protocol_version,
        "name": (ctx.meta.client_info or {}).get("name"),
        "capabilities": ctx.meta.capabilities,
        "extra": ctx.meta.fields.get("example.org/extra"),
    }


_meeting = asyncio.Barrier(2)


@server.tool
async def meets() -> str:
    """Wait for a second call: both end only if they run at the same time."""
    await _meeting.wait()
    return "met"


_abandoned = asyncio.Event()


@server.tool
async def waits(ctx: Context) -> str:
    """Wait until the client cancels."""
    try:
        await ctx.progress(1)
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        _abandoned.set()
        raise
    return "never"


@server.tool
async def was_abandoned() -> str:
    """Return once `waits` was cancelled."""
    await _abandoned.wait()
    return "abandoned"


# Tools: changes


@server.tool
async def changes(what: str) -> str:
    """Change a list or the counter, for those who subscribed to it. Changed again, a list is as before."""
    if what == "counter":
        _bumps.append(what)
        server.resource_updated("note://unwatched")
        server.resource_updated("note://counter")
    elif what in _late:
        _late.remove(what)
        _REMOVE[what]()
    else:
        _late.add(what)
        _ADD[what]()
    return what


_late: set[str] = set()
_bumps: list[str] = []
_ADD = {
    "tools": lambda: server.add_tool(text, name="late_tool"),
    "prompts": lambda: server.add_prompt(motto, name="late_prompt"),
    "resources": lambda: server.add_resource("note://late", plain_note, name="late"),
}
_REMOVE = {
    "tools": lambda: server.remove_tool("late_tool"),
    "prompts": lambda: server.remove_prompt("late_prompt"),
    "resources": lambda: server.remove_resource("note://late"),
}


@server.tool
async def closes() -> str:
    """Interrupt the server, as its operator would."""
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
    return "closing"


# Resources


@server.resource("note://plain", title="Plain", mime_type="text/markdown", size=9)
async def plain_note() -> str:
    """A text."""
    return "# Grüße"


@server.resource(
    "note://binary",
    mime_type="application/x-bytes",
    annotations=types.Annotations(audience=["assistant"], priority=1.0),
)
def binary_note() -> bytes:
    """Some bytes."""
    return bytes(range(6))


@server.resource("note://timetable", cache=CacheHint(ttl_ms=5_000, scope="public"))
async def timetable() -> dict[str, list[int]]:
    """Data, sent as JSON."""
    return {"departures": [7, 19]}


@server.resource("note://counter")
async def counter() -> str:
    """How often it was bumped."""
    return str(len(_bumps))


@server.resource("station://{city}/platform/{number}", title="Platform", mime_type="text/plain")
async def platform(city: str, number: int) -> str:
    """A platform of a station."""
    return f"platform {number} of {city}"


@server.resource("search://trains{?to,limit}")
async def search(to: str = "anywhere", limit: int = 10) -> str:
    """A search with optional parts."""
    return f"{limit} trains to {to}"


@server.resource("file://docs/{+path}")
async def document(path: str) -> list[types.TextResourceContents]:
    """Several contents."""
    return [
        types.TextResourceContents(uri=f"file://docs/{path}#{part}", mime_type="text/plain", text=part)
        for part in ("head", "body")
    ]


# Prompts and completions


@server.prompt(title="Motto")
async def motto() -> str:
    """A prompt without arguments."""
    return "Be on time."


@server.prompt
async def itinerary(
    city: Annotated[str, Field(description="Where to")], country: str = "Japan", days: int = 2
) -> list[types.PromptMessage]:
    """Plan a journey."""
    return [
        types.PromptMessage(
            role="user", content=types.TextContent(text=f"Plan {days} days in {city}, {country}.")
        ),
        types.PromptMessage(role="assistant", content=types.TextContent(text="With pleasure.")),
    ]


@server.prompt(name="grüßen")
async def greeting() -> list[types.ContentBlock]:
    """A prompt with an image, and a name that no HTTP header can carry as it is."""
    return [types.TextContent(text="Who is this?"), await image()]


_CITIES = {"Japan": ["Sapporo", "Sendai", "Tōkyō"], "France": ["Sète"]}


@server.completion(prompt="itinerary", argument="city")
async def complete_city(value: str, arguments: dict[str, str]) -> list[str]:
    """Cities of the chosen country by their beginning."""
    return [city for city in _CITIES[arguments.get("country", "Japan")] if city.startswith(value)]


@server.completion(resource="station://{city}/platform/{number}", argument="number")
def complete_number(value: str) -> list[str]:
    """More values than one answer may carry."""
    return [f"{value}{number}" for number in range(250)]


def main(transport: str, port: str = "0") -> None:
    """Serve until stdin ends or a signal comes; the last line of stderr says that this was orderly."""
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background job starts without it.
    try:
        if transport == "http":
            server.run("http", port=int(port), log_level="warning")
        else:
            server.run("stdio")
    except KeyboardInterrupt:
        pass
    print("The server ended.", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
