"""Servers that break every rule, on raw sockets: an honest handshake, then whatever a test wants."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from tests.serving import VERSION, listening_socket

Message: TypeAlias = dict[str, Any]
Deed: TypeAlias = Callable[[asyncio.StreamWriter, Message], Awaitable[None]]
"""What a server does instead of answering."""

JSON = "application/json"


def result(message: Message, value: Any) -> bytes:
    """A response in order."""
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode()


def text(words: str) -> dict[str, Any]:
    """A tool's result in order."""
    return {"resultType": "complete", "content": [{"type": "text", "text": words}]}


def whole(body: bytes, *, status: str = "200 OK", kind: str = JSON, head: str = "") -> bytes:
    """An HTTP response in order, around any body."""
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode()
        + body
    )


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def says(body: bytes, **how: str) -> Deed:
    """Answer with a body."""

    async def deed(writer: asyncio.StreamWriter, message: Message) -> None:
        writer.write(whole(body.replace(b'"ID"', json.dumps(message["id"]).encode()), **how))

    return deed


def answers(value: Any) -> Deed:
    """Answer with a result in order."""

    async def deed(writer: asyncio.StreamWriter, message: Message) -> None:
        writer.write(whole(result(message, value)))

    return deed


def floods(first: bytes, again: bytes) -> Deed:
    """Send something, then something else for as long as anybody takes it."""

    async def deed(writer: asyncio.StreamWriter, message: Message) -> None:
        writer.write(first)
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(again)
                await writer.drain()

    return deed


def breaks_off(after: bytes) -> Deed:
    """Send something and hang up."""

    async def deed(writer: asyncio.StreamWriter, message: Message) -> None:
        writer.write(after)
        await writer.drain()
        writer.close()

    return deed


class Evil:
    """An HTTP server that is honest about who it is, and about nothing else."""

    def __init__(self, deeds: dict[str, Deed], tools: list[Any] | None = None) -> None:
        self._deeds = deeds
        self._tools = tools if tools is not None else []
        self.url = ""
        self.heads: list[bytes] = []
        """The heads of all requests."""
        self.messages: list[Message] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                lines = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:-2])
                body = await reader.readexactly(int(lines.get("content-length", "0")))
                if body:
                    self.messages.append(json.loads(body))
                    await self._answer(writer, self.messages[-1])
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, message: Message) -> None:
        method = message["method"]
        params = message.get("params", {})
        if method in self._deeds:
            await self._deeds[method](writer, message)
        elif method == "server/discover":
            writer.write(whole(result(message, {"supportedVersions": [VERSION], "capabilities": {}})))
        elif method == "tools/list":
            writer.write(whole(result(message, {"resultType": "complete", "tools": self._tools})))
        elif params.get("name") in self._deeds:
            await self._deeds[params["name"]](writer, message)
        else:
            writer.write(whole(result(message, text("honest"))))


@asynccontextmanager
async def evil(deeds: dict[str, Deed], tools: list[Any] | None = None) -> AsyncGenerator[Evil, None]:
    """Serve deeds by method or by the name of a tool; any other tool answers honestly."""
    server = Evil(deeds, tools)
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(server.serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    listener = await asyncio.start_server(accept, sock=listening_socket())
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
    try:
        yield server
    finally:
        listener.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
