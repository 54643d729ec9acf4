"""The MCP toolset of pydantic-ai, called as an agent calls it, but without a model."""

from typing import Any

import steps
from fastmcp.client.elicitation import ElicitResult
from pydantic_ai.mcp import MCPToolset


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
    async with MCPToolset(url, **handlers) as toolset:
        return await steps.take(toolset.direct_call_tool)


if __name__ == "__main__":
    steps.run(connect)
