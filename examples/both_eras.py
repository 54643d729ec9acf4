"""One handler, clients of two eras: run it, and see the same answer over both wires."""

import asyncio
from typing import Literal

from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client, Context, Server, SessionLimits

server = Server("greeter", sessions=SessionLimits(idle_seconds=600))


@server.tool
async def greet(ctx: Context) -> str:
    """Greet the user by name."""
    answer = await ctx.elicit("What is your name?", str)
    wire = "a round" if ctx.supports_rounds else "a pushed request"
    return f"Hello, {answer.data}! That took {wire}."


async def answer(params: ElicitRequestFormParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": "Aiko"})


async def main() -> None:
    eras: tuple[Literal["modern", "legacy"], ...] = ("modern", "legacy")
    for mode in eras:
        async with Client(server, elicit=answer, mode=mode) as client:
            result = await client.call_tool("greet")
            said = [block.text for block in result.content if block.type == "text"]
            print(client.session.version, *said)


if __name__ == "__main__":
    asyncio.run(main())
