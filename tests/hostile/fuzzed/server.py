"""A hostile server over HTTP, on raw sockets: what it does to each request is drawn from its seed."""

import asyncio
import contextlib
import gzip
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from tests.hostile.evil import STREAM, whole
from tests.serving import listening_socket

from .values import POISON, mutated, odd, question, result_for, task

Write: TypeAlias = Callable[[bytes], Awaitable[None]]

BOMB = gzip.compress(b'{"jsonrpc":"2.0","id":1,"result":{"a":"' + b"x" * 50_000_000 + b'"}}')
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


class FuzzedServer:
    """Answers whatever comes with whatever its dice say. Keeps what it was sent."""

    def __init__(self, seed: int, elsewhere: str) -> None:
        self._dice = random.Random(seed)
        self._elsewhere = elsewhere
        """The address of another server, to which nothing must go."""
        self._number = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:-2])
                body = await reader.readexactly(int(lines.get("content-length", "0")))
                message = json.loads(body) if body else {}
                if not await self._answer(write, message):
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _answer(self, write: Write, message: dict[str, Any]) -> bool:
        """Do something; whether the connection stays."""
        self._number += 1
        method = message.get("method", "")
        if "id" not in message:
            await write(whole(b"", status=self._dice.choice(["202 Accepted", "200 OK", "404 No", "405 No"])))
            return True
        opening = method in ("server/discover", "initialize")
        if self._dice.random() < (0.1 if opening else 0.4):
            return await self._break(write, message)
        result = result_for(self._dice, method, self._number)
        for _ in range(self._dice.choice([0, 0, 1, 3]) if not opening or self._dice.random() < 0.1 else 0):
            result = mutated(self._dice, result)
        response = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if self._dice.random() < 0.25 or method == "subscriptions/listen":
            await write(STREAM + self._noise(message) + _event(response) * self._dice.choice([1, 1, 3]))
            return False
        await write(whole(json.dumps(response).encode()))
        return True

    def _noise(self, message: dict[str, Any]) -> bytes:
        """Events before a response: some belong to the request, some to nobody."""
        token = message.get("params", {}).get("_meta", {}).get("progressToken", 1)
        progress = {"progressToken": token, "progress": odd(self._dice), "total": 2, "message": POISON}
        notes: list[dict[str, Any]] = [
            {"method": "notifications/progress", "params": progress},
            {"method": "notifications/message", "params": {"level": POISON, "data": odd(self._dice)}},
            {"method": "notifications/tasks", "params": task(self._dice)},
            {"method": "notifications/cancelled", "params": {"requestId": message["id"]}},
            {"method": "notifications/tools/list_changed"},
            {"method": POISON, "params": odd(self._dice)},
            {"id": 77, "result": {}},
            {"id": self._dice.choice([1, POISON, None]), **question(self._dice)},
        ]
        chosen = self._dice.choices(notes, k=self._dice.choice([0, 1, 3]))
        return b": hello\n\nretry: 0\nid: 7\n\n" + b"".join(
            _event({"jsonrpc": "2.0", **note}) for note in chosen
        )

    async def _break(self, write: Write, message: dict[str, Any]) -> bool:
        """Break a rule of HTTP, of streams, or of JSON-RPC."""
        dice = self._dice
        response = {"jsonrpc": "2.0", "id": message["id"], "result": {}}
        good = json.dumps(response).encode()
        error = {
            "jsonrpc": "2.0",
            "id": message["id"],
            "error": {"code": dice.choice([-32602, 5, "x"]), "message": POISON},
        }
        moved = (
            f"location: {dice.choice([self._elsewhere, '/mcp', '//' + self._elsewhere[7:], POISON[:9]])}\r\n"
        )
        whole_answers = [
            whole(json.dumps(error).encode(), status=dice.choice(["200 OK", "400 Bad", "404 No", "500 No"])),
            whole(POISON.encode(), status="403 No", kind="text/plain"),
            whole(b"<" * 60_000, status="500 No", kind="text/html"),
            whole(good, kind=dice.choice(["text/html", "application/xml", POISON[-5:], ""])),
            whole(
                b"",
                status=dice.choice(["301 Moved", "302 Moved", "303 Moved", "307 Moved", "308 Moved"]),
                head=moved,
            ),
            whole(BOMB, head="content-encoding: gzip\r\n"),
            whole(good, head="content-encoding: gzip\r\n"),
            whole(json.dumps({**response, "id": dice.choice([0, "1", None, [1]])}).encode()),
            whole(good) + whole(good),
            whole(b"[" * 50_000),
            whole(b'{"jsonrpc":"2.0","id":1,"result":{"a":' + b"[]," * 300_000),
        ]
        endings = [
            HEAD + b"content-length: 1073741824\r\n\r\n" + good,
            HEAD + b"transfer-encoding: chunked\r\n\r\nfffffff\r\n" + good,
            b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            STREAM + self._noise(message),
            STREAM + b"data: {\n" * 100,
            HEAD,
            b"",
        ]
        floods = [
            (STREAM, b": x\n" * 999),
            (HEAD, b"x: y\r\n" * 999),
            (STREAM, _event({"jsonrpc": "2.0", "method": "a"}) * 99),
        ]
        kind = dice.choice(["whole", "whole", "ending", "silence", "flood", "drip"])
        if kind == "whole":
            await write(dice.choice(whole_answers))
            return True
        if kind == "ending":
            await write(dice.choice(endings))
        elif kind == "silence":
            await write(dice.choice([b"", HEAD, STREAM]))
            await asyncio.sleep(3600)
        elif kind == "flood":
            first, again = dice.choice(floods)
            await write(first)
            while True:
                await write(again)
        else:
            for byte in whole(good) + STREAM:
                await write(bytes([byte]))
                await asyncio.sleep(0.05)
        return False


def _event(message: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


@asynccontextmanager
async def fuzzed_server(seed: int) -> AsyncGenerator[tuple[str, list[bytes]], None]:
    """The address of a server of this seed, and all that another server was sent meanwhile."""
    running: set[asyncio.Task[None]] = set()
    strayed: list[bytes] = []

    async def trap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        strayed.append(await reader.read(65536))
        writer.close()

    other = await asyncio.start_server(trap, sock=listening_socket())
    server = FuzzedServer(seed, f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/stolen")

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(server.serve(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    listener = await asyncio.start_server(accept, sock=listening_socket())
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp", strayed
    finally:
        listener.close()
        other.close()
        for task in tuple(running):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*running, return_exceptions=True)
