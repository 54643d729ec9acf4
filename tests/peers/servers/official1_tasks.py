"""A server with the experimental tasks of the official Python SDK, first generation. Run by `.peers/mcp1`.

    python official1_tasks.py http PORT
    python official1_tasks.py stdio

Tasks are in its low-level interface only. What it must answer stands in `test_foreign_tasks.py`.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import mcp.types as types
import uvicorn
from mcp.server.experimental.task_context import ServerTaskContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount

server: Server[Any, Any] = Server("foreign tasks")
server.experimental.enable_tasks()

FORM = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
MODES = {
    "order": types.TASK_REQUIRED,
    "add": types.TASK_OPTIONAL,
    "breaks": types.TASK_REQUIRED,
    "says_no": types.TASK_REQUIRED,
    "hangs": types.TASK_REQUIRED,
    "plain": None,
}


def text(words: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)], isError=is_error)


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    """The tools, and what each says of tasks."""
    return [
        types.Tool(
            name=name,
            inputSchema={"type": "object"},
            execution=None if mode is None else types.ToolExecution(taskSupport=mode),
        )
        for name, mode in MODES.items()
    ]


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any]) -> types.CallToolResult | types.CreateTaskResult:
    """Call a tool, as a task where it is one."""
    tasks = server.request_context.experimental
    tasks.validate_task_mode(MODES[name])
    if not tasks.is_task:
        return text("plain" if name == "plain" else str(arguments["n"] + 1))
    return await tasks.run_task(lambda task: WORK[name](task, arguments))


async def order(task: ServerTaskContext, arguments: dict[str, Any]) -> types.CallToolResult:
    await task.update_status("looking for a supplier")
    answer = await task.elicit("How many?", FORM)
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Say thanks."))
    thanks = await task.create_message([message], max_tokens=20)
    assert answer.content is not None
    assert isinstance(thanks.content, types.TextContent)
    return text(f"{answer.content['value']} ordered. {thanks.content.text}")


async def add(task: ServerTaskContext, arguments: dict[str, Any]) -> types.CallToolResult:
    return text(str(arguments["n"] + 1))


async def breaks(task: ServerTaskContext, arguments: dict[str, Any]) -> types.CallToolResult:
    raise RuntimeError("the machine is broken")


async def says_no(task: ServerTaskContext, arguments: dict[str, Any]) -> types.CallToolResult:
    return text("The office is closed.", is_error=True)


async def hangs(task: ServerTaskContext, arguments: dict[str, Any]) -> types.CallToolResult:
    await asyncio.sleep(3600)
    return text("never")


WORK = {"order": order, "add": add, "breaks": breaks, "says_no": says_no, "hangs": hangs}


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def over_http(port: int) -> None:
    manager = StreamableHTTPSessionManager(server)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    application = Starlette(routes=[Mount("/mcp", manager.handle_request)], lifespan=lifespan)
    uvicorn.run(application, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    over_http(int(sys.argv[2])) if sys.argv[1] == "http" else asyncio.run(over_stdio())
