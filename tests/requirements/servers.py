"""The servers under test, as a program: `python -m tests.requirements.servers http|stdio NAME [PORT]`."""

import sys
from typing import Any

from ekiden import CacheHint, HttpLimits, Server

from .server_content import add_content
from .server_tools import add_tools


def full() -> Server:
    """A server with everything."""
    server = Server("requirements", version="1.0", instructions="Read the table.")
    add_tools(server)
    add_content(server)
    return server


def bare() -> Server:
    """A server with one tool and nothing else."""
    server = Server("bare")

    @server.tool
    def echo(text: str) -> str:
        return text

    return server


def toolless() -> Server:
    """A server with one prompt and nothing else."""
    server = Server("toolless")

    @server.prompt
    def greet(name: str) -> str:
        return f"Greet {name}."

    return server


def paged() -> Server:
    """A server whose lists have several pages, with hints for caches."""
    lists = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
    server = Server("paged", page_size=2, cache={name: CacheHint(60_000, "public") for name in lists})
    for number in range(5):
        server.add_tool(lambda: "", name=f"tool{number}", input_schema={"type": "object"})
        server.add_prompt(lambda: "", name=f"prompt{number}")
        server.add_resource(f"memo://{number}", lambda: "", name=f"resource{number}")
        server.add_resource(f"memo://{number}/{{key}}", lambda key: key, name=f"template{number}")
    return server


def nullable() -> Server:
    """A server with a tool whose mirrored parameter may be null."""
    server = Server("nullable")
    region = {"type": ["string", "null"], "x-mcp-header": "Region"}

    @server.tool(input_schema={"type": "object", "properties": {"region": region}})
    def mirror(arguments: dict[str, Any]) -> str:
        return "reached"

    return server


if __name__ == "__main__":
    transport, name, *port = sys.argv[1:]
    made = {"full": full, "bare": bare, "toolless": toolless, "paged": paged, "nullable": nullable}
    server = made[name]()
    if transport == "stdio":
        server.run("stdio", grace=1.0)
    else:
        limits = HttpLimits(silence_seconds=0.5)
        server.run("http", port=int(port[0]), limits=limits, grace=1.0, log_level="error")
