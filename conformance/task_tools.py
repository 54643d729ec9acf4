"""The fixtures of the tasks extension, in straight code."""

import asyncio

from pydantic import BaseModel

from ekiden import Context, ProtocolError, Server, ToolError

__all__ = ["add_task_tools"]


class Confirmation(BaseModel):
    confirm: bool


class Name(BaseModel):
    name: str


async def greet(name: str) -> str:
    """Greet someone."""
    return f"Hello, {name}!"


async def slow_compute(seconds: float, ctx: Context, label: str = "work") -> str:
    """Compute for a while."""
    await ctx.progress(0, message=f"computing {label}")
    await ctx.sleep(seconds)
    return f"Computed {label} in {seconds:g} seconds."


async def failing_job(ctx: Context) -> str:
    """Fail after a second, as tools do."""
    await ctx.sleep(1)
    raise ToolError("The job failed, as it always does.")


async def protocol_error_job(ctx: Context) -> str:
    """Fail as protocols do."""
    await ctx.sleep(0.1)
    raise ProtocolError("The job broke the protocol, as it always does.")


async def confirm_delete(filename: str, ctx: Context) -> str:
    """Delete a file once the user has agreed."""
    answer = await ctx.elicit(f"Delete {filename}?", Confirmation)
    if answer.action != "accept" or not answer.data.confirm:
        return f"{filename} was kept."
    return f"{filename} was deleted."


async def multi_input(ctx: Context) -> str:
    """Ask two questions at once."""
    name, sure = await asyncio.gather(
        ctx.elicit("What is your name?", Name), ctx.elicit("Are you sure?", Confirmation)
    )
    who = name.data.name if name.action == "accept" else "nobody"
    certain = sure.action == "accept" and sure.data.confirm
    return f"{who} is {'sure' if certain else 'not sure'}."


async def test_tool_with_task(ctx: Context) -> str:
    """Ask a question in a round, and then go on as a task."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    await ctx.background()
    await ctx.sleep(0.1)
    return f"Hello, {answer.data.name if answer.action == 'accept' else 'stranger'}, from a task!"


def add_task_tools(server: Server) -> None:
    """Register them all."""
    server.tool(greet)
    server.tool(task="optional")(slow_compute)
    for function in (failing_job, protocol_error_job, confirm_delete, multi_input):
        server.tool(task="required")(function)
    server.tool(task="deferred")(test_tool_with_task)
