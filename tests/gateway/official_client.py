"""What the official Python client sees of a gateway. Run by the interpreter of `.peers/mcp`.

python official_client.py URL TOOL...
"""

import asyncio
import json
import sys
from typing import Any

from mcp import Client
from mcp_types import ElicitRequestFormParams, ElicitResult


async def main(url: str, calls: list[str]) -> None:
    async def elicit(context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        (field,) = params.requested_schema["properties"]
        return ElicitResult(action="accept", content={field: 2})

    async with Client(url, elicitation_callback=elicit) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        told = {}
        for name in calls:
            result = await client.call_tool(name, {"item": "tea"})
            told[name] = result.content[0].text  # type: ignore[union-attr]
        print(json.dumps({"listed": listed, "told": told}))


asyncio.run(asyncio.wait_for(main(sys.argv[1], sys.argv[2:]), 60))
