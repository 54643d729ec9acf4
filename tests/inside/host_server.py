"""A host with durable handlers: `python host_server.py ekiden|mcp|fastmcp PORT`, or `stdio` for a port.

`STORE`, `EKIDEN_KEYS` and `NOTES` are in the environment.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import uvicorn
from handlers import register  # It lies beside this script.

from ekiden import RoundLimits, Server, TaskLimits

LIMITS: dict[str, Any] = {
    "rounds": RoundLimits(lease_seconds=1.0),
    "tasks": TaskLimits(lease_seconds=1.0, poll_seconds=0.05),
}


def plain(x: int) -> str:
    """A tool of the host's own."""
    return str(x)


def ekiden_server() -> Server:
    server = Server("shop", store=os.environ["STORE"], **LIMITS)
    register(server)
    server.tool(structured=False)(plain)
    return server


def mcp_server() -> Any:
    from mcp.server.mcpserver import MCPServer

    from ekiden.integrations.mcp import Durable

    server = MCPServer("shop", log_level="WARNING")
    durable = Durable(server, store=os.environ["STORE"], **LIMITS)
    register(durable)
    server.tool(structured_output=False)(plain)
    return server


def fastmcp_server() -> Any:
    from fastmcp import FastMCP

    from ekiden.integrations.fastmcp import Durable

    server = FastMCP("shop")
    durable = Durable(server, store=os.environ["STORE"], **LIMITS)
    register(durable)
    server.tool(output_schema=None)(plain)
    return server


SERVERS = {"ekiden": ekiden_server, "mcp": mcp_server, "fastmcp": fastmcp_server}
APPLICATIONS: dict[str, Callable[[Any], Any]] = {
    "ekiden": lambda server: server.asgi(),
    "mcp": lambda server: server.streamable_http_app(),
    "fastmcp": lambda server: server.http_app(path="/mcp"),
}


def main(host: str, where: str) -> None:
    server: Any = SERVERS[host]()
    if where == "stdio":
        server.run("stdio", **({"show_banner": False} if host == "fastmcp" else {}))
        return
    application = APPLICATIONS[host](server)
    uvicorn.run(
        application, host="127.0.0.1", port=int(where), log_level="warning", timeout_graceful_shutdown=3
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
