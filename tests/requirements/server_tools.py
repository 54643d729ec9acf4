"""Tools of the servers under test."""

import asyncio
import subprocess
import sys
from typing import Any

from ekiden import Context, MissingCapability, Server, ToolError

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Gates:
    """Events by name: how one request waits for another."""

    def __init__(self) -> None:
        self.events: dict[str, asyncio.Event] = {}

    def __getitem__(self, name: str) -> asyncio.Event:
        return self.events.setdefault(name, asyncio.Event())


def add_tools(server: Server) -> None:
    """Add all the tools."""
    gates = Gates()
    _simple_tools(server)
    _failing_tools(server)
    _other_tools(server)
    _talking_tools(server, gates)
    _hanging_tools(server, gates)
    _straggling_tools(server, gates)
    _changing_tools(server)
    _mirroring_tool(server)


def _simple_tools(server: Server) -> None:
    ran: list[str] = []

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    def count(n: int) -> str:
        ran.append("count")
        return str(n)

    @server.tool
    def runs() -> int:
        return len(ran)

    @server.tool
    def seven() -> int:
        return 7

    @server.tool(
        output_schema={"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    )
    def measure(good: bool) -> Any:
        return {"n": 1} if good else {"n": "one"}

    @server.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    def numbers() -> Any:
        return [1, 2, 3]


def _failing_tools(server: Server) -> None:
    @server.tool
    def refuse() -> str:
        raise ToolError("Not today.")

    @server.tool
    def crash() -> str:
        raise RuntimeError("broken")

    @server.tool
    def sampler(ctx: Context) -> str:
        if "sampling" not in ctx.meta.capabilities:
            raise MissingCapability({"sampling": {}})
        return "sampled"


def _other_tools(server: Server) -> None:
    @server.tool
    def who(ctx: Context) -> dict[str, Any]:
        meta = ctx.meta
        return {"client": meta.client_info, "capabilities": meta.capabilities, "fields": meta.fields}

    @server.tool
    def noise(how: str) -> str:
        if how == "print":
            print("not a message")
        elif how == "child":
            subprocess.run([sys.executable, "-c", "print('not a message')"], check=True)
        return "quiet"


def _talking_tools(server: Server, gates: Gates) -> None:
    @server.tool
    async def steps(ctx: Context) -> str:
        for value in (1, 2, 2, 1.5, 3):
            await ctx.progress(value, 3, f"at {value}")
        return "done"

    @server.tool
    async def talk(ctx: Context) -> str:
        for level in LEVELS:
            await ctx.log(level, {"said": level}, logger="talk")
        return "said"

    @server.tool
    async def meet(ctx: Context, me: str, other: str) -> str:
        """Speak up, then wait for the other one, then speak again."""
        await ctx.progress(1, message=me)
        await ctx.log("error", me)
        gates[me].set()
        await asyncio.wait_for(gates[other].wait(), 10)
        await ctx.progress(2, message=me)
        return me


def _hanging_tools(server: Server, gates: Gates) -> None:
    @server.tool
    async def hang(ctx: Context, key: str, then: str = "stop") -> str:
        """Run until cancelled; then stop, or go on talking, or return all the same."""
        try:
            await ctx.progress(1)
            await gates[f"go {key}"].wait()
        except asyncio.CancelledError:
            gates[f"cancelled {key}"].set()
            if "talk" in then:
                await ctx.progress(2)
                await ctx.log("emergency", "still here")
            if "return" in then:
                return "too late"
            raise
        return "went"

    @server.tool
    async def free(key: str) -> str:
        """Let `hang` end."""
        gates[f"go {key}"].set()
        return key

    @server.tool
    async def cancelled(key: str) -> bool:
        """Wait until `hang` was cancelled."""
        await asyncio.wait_for(gates[f"cancelled {key}"].wait(), 10)
        return True


def _straggling_tools(server: Server, gates: Gates) -> None:
    @server.tool
    async def leave_behind(ctx: Context, key: str) -> str:
        """Answer, and leave a task behind that goes on reporting."""

        async def straggler() -> None:
            await gates[f"go {key}"].wait()
            try:
                await ctx.progress(99)
                await ctx.log("emergency", "still here")
            finally:
                gates[f"tried {key}"].set()

        gates.events[f"task {key}"] = asyncio.create_task(straggler())  # type: ignore[assignment]
        await ctx.progress(1)
        return "left"

    @server.tool
    async def release(key: str) -> str:
        """Let the task that was left behind report, and wait until it tried."""
        gates[f"go {key}"].set()
        await asyncio.wait_for(gates[f"tried {key}"].wait(), 10)
        return "released"


def _changing_tools(server: Server) -> None:
    def nothing() -> str:
        return ""

    @server.tool
    def grow(kind: str, name: str) -> str:
        if kind == "tool":
            server.add_tool(nothing, name=name)
        elif kind == "prompt":
            server.add_prompt(nothing, name=name)
        else:
            server.add_resource(f"memo://{name}", nothing, name=name)
        return name

    @server.tool
    def shrink(kind: str, name: str) -> str:
        if kind == "tool":
            server.remove_tool(name)
        elif kind == "prompt":
            server.remove_prompt(name)
        else:
            server.remove_resource(f"memo://{name}")
        return name

    @server.tool
    def touch(uri: str) -> str:
        server.resource_updated(uri)
        return uri


def _mirroring_tool(server: Server) -> None:
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "shard": {"type": "integer", "x-mcp-header": "Shard"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
        },
    }

    @server.tool(input_schema=schema)
    def mirror(arguments: dict[str, Any]) -> str:
        return "reached"
