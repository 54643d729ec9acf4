"""A server with one tool for each thing that a client can be asked, for the clients of agent frameworks.

python server.py http PORT
python server.py stdio
"""

import logging
import signal
import sys
from typing import Any

from pydantic import BaseModel

from ekiden import Context, Server
from ekiden.stores.memory import MemoryStore

server = Server("inn", store=MemoryStore())


class Guest(BaseModel):
    """What the form asks for."""

    name: str
    nights: int


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers: a tool that asks nothing."""
    return a + b


@server.tool
async def caller(ctx: Context) -> dict[str, Any]:
    """The version that the client speaks, and what it declares."""
    return {"version": ctx.meta.protocol_version, "capabilities": ctx.meta.capabilities}


@server.tool
async def book(ctx: Context) -> str:
    """Ask the user by a form."""
    answer = await ctx.elicit("Who is coming?", Guest)
    return answer.action if answer.action != "accept" else f"{answer.data.name} for {answer.data.nights}"


@server.tool
async def sign_in(ctx: Context) -> str:
    """Send the user to a page."""
    return (await ctx.elicit_url("Please sign in", "https://inn.example/login")).action


@server.tool
async def ask_model(ctx: Context) -> str:
    """Ask the client's model."""
    said: Any = (await ctx.sample("A haiku", max_tokens=50)).content
    return str(said.text)


@server.tool
async def ask_roots(ctx: Context) -> str:
    """Ask for the client's roots."""
    return " ".join(str(root.uri) for root in await ctx.list_roots())


_cleaned: list[int] = []


@server.tool(task="optional")
async def clean(room: int) -> str:
    """Work that is a task where the client has tasks."""
    _cleaned.append(room)
    return f"room {room} is clean"


@server.tool
async def cleaned() -> list[int]:
    """The rooms that were cleaned, in order: each once, however often the client looked at the task."""
    return _cleaned


def main(transport: str, port: str = "0") -> None:
    """Serve until stdin ends or a signal comes."""
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if transport == "http":
        server.run("http", port=int(port), log_level="warning")
    else:
        server.run("stdio")


if __name__ == "__main__":
    main(*sys.argv[1:])
