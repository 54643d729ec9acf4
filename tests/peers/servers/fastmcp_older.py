"""A server of FastMCP, second or third generation. Run by the interpreter of `.peers/fastmcp2` or `3`.

    python fastmcp_older.py http PORT
    python fastmcp_older.py sse PORT
    python fastmcp_older.py stdio

What it must answer stands in `test_real_servers.py`.
"""

import logging
import sys

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

logging.disable(logging.INFO)

server = FastMCP("older")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def stations(line: str) -> list[str]:
    """A list, which this SDK wraps."""
    return [f"{line} {number}" for number in (1, 2)]


@server.tool
async def fails() -> str:
    """Fail in a way that the caller should read."""
    raise ToolError("The ticket office is closed.")


@server.tool
async def order(item: str, ctx: Context) -> str:
    """Ask the user, then the client's model, and report progress."""
    answer = await ctx.elicit(f"Order {item}?", response_type=int)
    if answer.action != "accept":
        return f"{item}: {answer.action}"
    await ctx.report_progress(1, 2, "ordered")
    poem = await ctx.sample("A haiku", max_tokens=40)
    return f"{item}: {answer.data}, {poem.text}"


@server.prompt
async def briefing(topic: str) -> str:
    """A prompt."""
    return f"Explain {topic}."


@server.resource("note://{name}/page")
async def page(name: str) -> str:
    """A text of somebody's."""
    return f"the page of {name}"


def main(transport: str, port: str = "0") -> None:
    if transport == "stdio":
        server.run("stdio", show_banner=False)
    else:
        server.run(transport, port=int(port), show_banner=False, log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
