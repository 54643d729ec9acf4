"""ekiden's client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp_types import ElicitRequestFormParams, ElicitResult

from bench.clients.timing import MOST_ROUNDS, Call, measure, text_of
from ekiden import Client


async def agree(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"ok": True})


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Call]:
    async with Client(url, elicit=agree, max_rounds=MOST_ROUNDS) as client:

        async def call(tool: str, arguments: dict[str, Any]) -> str:
            result = await client.call_tool(tool, arguments)
            return text_of(result.content)

        yield call


if __name__ == "__main__":
    measure(connect)
