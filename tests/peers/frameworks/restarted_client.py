"""A client of 2025 whose server is restarted between two calls. Run by the interpreter of `.peers/mcp1`.

    python restarted_client.py URL

Calls a tool, prints what came of it, waits for a line on stdin, and calls it again in the same session.
"""

import asyncio
import sys

from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamablehttp_client


async def main(url: str) -> None:
    """Call twice."""
    async with streamablehttp_client(url) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        for a in (1, 3):
            try:
                result = await session.call_tool("add", {"a": a, "b": 1})
                print(*[getattr(block, "text", "") for block in result.content], flush=True)
            except McpError as error:
                print(error, flush=True)
            if a == 1:
                await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
