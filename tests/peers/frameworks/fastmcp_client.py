"""FastMCP's own client; where `fastmcp-tasks` is installed, with it."""

import importlib.util
from typing import Any

import steps
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult

if importlib.util.find_spec("fastmcp_tasks") is not None:
    import fastmcp_tasks  # noqa: F401  importing it makes every client one that has tasks


async def elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
    if getattr(params, "mode", "form") == "url":
        return ElicitResult(action="accept")
    return {"name": "Mio", "nights": 2}


async def sample(messages: Any, params: Any, context: Any) -> str:
    return "old pond"


async def connect(url: str, full: bool) -> dict[str, Any]:
    handlers: dict[str, Any] = {}
    if full:
        handlers = {"elicitation_handler": elicit, "sampling_handler": sample, "roots": ["file:///inn"]}
    async with Client(url, **handlers) as client:

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            result = await client.call_tool(name, arguments)
            return result.structured_content or [getattr(block, "text", "") for block in result.content]

        return await steps.take(call)


if __name__ == "__main__":
    steps.run(connect)
