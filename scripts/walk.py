"""The way of a call through the source: `python -m scripts.walk`, or `--list` for every function on it.

Counts the Python functions of `src/ekiden` that are entered for one warm call of a tool, for a round that
brings an answer, and for a step of a task: how many, in how many files, and how often the folder changes.
"""

import argparse
import asyncio
import itertools
import json
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any, Final

from ekiden import Context, Server
from ekiden.server.serving.http import serve_http

_HOME: Final = Path(__file__).parent.parent / "src" / "ekiden"
_SECONDS: Final = 10.0

server = Server("walk", keys=[b"a key that is used for nothing else at all"], store="memory:")


@server.tool
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@server.tool
async def confirm(ctx: Context) -> str:
    """Ask once."""
    return (await ctx.elicit("Sure?", bool)).action


async def one() -> int:
    """The step."""
    return 1


gate, passed = asyncio.Event(), asyncio.Event()


@server.tool(task="required")
async def work(ctx: Context) -> str:
    """Take one step when the gate opens."""
    await gate.wait()
    await ctx.step(one)
    passed.set()
    return "done"


class Walk:
    """The functions of ekiden that are entered while it is watched."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        """File and function."""
        self._seen: dict[int, FrameType] = {}
        """A coroutine is entered again whenever it goes on; it counts once."""

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if (
            event == "call"
            and frame.f_code.co_filename.startswith(str(_HOME))
            and id(frame) not in self._seen
        ):
            self._seen[id(frame)] = frame
            file = Path(frame.f_code.co_filename).relative_to(_HOME)
            self.calls.append((str(file), frame.f_code.co_qualname))

    async def during(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Watch this thread until the work is done."""
        sys.setprofile(self._on_event)
        try:
            return await work
        finally:
            sys.setprofile(None)

    def figures(self) -> str:
        """What was counted."""
        files = {file for file, _ in self.calls}
        folders = [str(Path(file).parent) for file, _ in self.calls]
        changes = sum(one != other for one, other in itertools.pairwise(folders))
        return f"{len(self.calls)} calls in {len(files)} files, {changes} changes of folder"


class Line:
    """A connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def call(self, method: str, name: str, **params: Any) -> dict[str, Any]:
        """The result of a request."""
        key = "taskId" if method.startswith("tasks/") else "name"
        capabilities: dict[str, Any] = {
            "elicitation": {"form": {}},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        }
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": method,
            "params": {key: name, **params, "_meta": meta},
        }
        body = json.dumps(message).encode()
        head = (
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
            f"mcp-method: {method}\r\nmcp-name: {name}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.split(b"content-length:")[1].split(b"\r\n")[0])
        reply = json.loads(await self._reader.readexactly(length))
        if "result" not in reply:
            raise SystemExit(f"no result: {reply}")
        result: dict[str, Any] = reply["result"]
        return result


async def _warm_call(line: Line, walk: Walk) -> None:
    for _ in range(3):
        await line.call("tools/call", "greet", arguments={"name": "Ada"})
    await walk.during(line.call("tools/call", "greet", arguments={"name": "Ada"}))


async def _answered_round(line: Line, walk: Walk) -> None:
    async def answered(walk: Walk) -> None:
        asked = await line.call("tools/call", "confirm", arguments={})
        responses = {key: {"action": "accept", "content": {"value": True}} for key in asked["inputRequests"]}
        state = asked["requestState"]
        await walk.during(
            line.call("tools/call", "confirm", arguments={}, inputResponses=responses, requestState=state)
        )

    await answered(Walk())
    await answered(walk)


async def _step_of_a_task(line: Line, walk: Walk) -> None:
    async def stepped(walk: Walk) -> None:
        gate.clear()
        passed.clear()
        await line.call("tools/call", "work", arguments={})
        await asyncio.sleep(0.2)  # It waits at the gate by then.
        gate.set()
        await walk.during(passed.wait())
        await asyncio.sleep(0.2)

    await stepped(Walk())
    await stepped(walk)


async def main(*, show: bool) -> None:
    """Serve, walk each way once, and print what was counted."""
    ready = asyncio.Event()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        serving = asyncio.create_task(
            serve_http(
                server.asgi(),
                host="127.0.0.1",
                port=0,
                grace=1.0,
                log_level="critical",
                sockets=[listening],
                on_ready=ready.set,
            )
        )
        await asyncio.wait_for(ready.wait(), _SECONDS)
        line = Line(*await asyncio.open_connection(*listening.getsockname()))
        for title, way in (
            ("a warm call of a tool", _warm_call),
            ("a round that brings an answer", _answered_round),
            ("a step of a task", _step_of_a_task),
        ):
            walk = Walk()
            await asyncio.wait_for(way(line, walk), _SECONDS)
            print(f"{title}: {walk.figures()}")
            if show:
                print("".join(f"    {file:44} {function}\n" for file, function in walk.calls))
        serving.cancel()
        await asyncio.wait({serving})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="show every function")
    asyncio.run(main(show=parser.parse_args().list))
