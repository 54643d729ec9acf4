"""A client without a memory of its own: every round is a new connection, to whichever worker."""

import asyncio
import contextlib
import copy
import itertools
import json
import re
from typing import Any

from .cluster import PATIENCE, Worker

Json = dict[str, Any]

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "relay-client", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}

_ids = itertools.count(1)


async def send(worker: Worker, message: Json) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a whole request over a connection of its own."""
    body = json.dumps(message).encode()
    head = (
        "POST /mcp HTTP/1.1\r\n"
        f"host: 127.0.0.1:{worker.port}\r\n"
        "content-type: application/json\r\n"
        "accept: application/json, text/event-stream\r\n"
        f"mcp-protocol-version: {VERSION}\r\n"
        f"mcp-method: {message['method']}\r\n"
        f"mcp-name: {message['params']['name']}\r\n"
        f"content-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def post(worker: Worker, message: Json, *, patience: float = PATIENCE) -> Json:
    """The response to a request."""
    async with asyncio.timeout(patience):
        reader, writer = await send(worker, message)
        try:
            received = await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    head, _, body = received.partition(b"\r\n\r\n")
    if b"text/event-stream" in head:  # It took so long that the worker had to show that it lives.
        body = next(line for line in body.splitlines() if line.startswith(b"data: ")).removeprefix(b"data: ")
    else:
        assert b"application/json" in head, f"not a reply in JSON: {received!r}"
    reply: Json = json.loads(body)
    assert reply["id"] == message["id"]
    return reply


class Call:
    """One call as its client knows it: what the last reply said, and what goes into the next request."""

    def __init__(self, tool: str, name: str, **arguments: Any) -> None:
        self.name = name
        self.asked: list[Json] = []
        """The interim results."""
        self.result: Json | None = None
        self.last: Worker | None = None
        """Who served the last round."""
        self._params = {"name": tool, "arguments": {"call": name, **arguments}, "_meta": META}
        self._retry: Json = {}

    def request(self) -> Json:
        """The next request. Made again, it is the same but for its id, as a repeat is."""
        params = {**self._params, **self._retry}
        return {"jsonrpc": "2.0", "id": next(_ids), "method": "tools/call", "params": copy.deepcopy(params)}

    async def round(self, worker: Worker) -> None:
        """One round, served by another worker than the round before."""
        assert worker is not self.last
        self.take(await post(worker, self.request()), worker)

    def take(self, reply: Json, worker: Worker) -> None:
        """Go on with a reply."""
        assert "result" in reply, f"{self.name}: {reply}"
        result: Json = reply["result"]
        self.last = worker
        if result["resultType"] == "input_required":
            self.asked.append(result)
            self._retry = {
                "inputResponses": {key: self.answer(asked) for key, asked in result["inputRequests"].items()},
                "requestState": result["requestState"],
            }
        else:
            self.result = result

    def answer(self, asked: Json) -> Json:
        """An answer that fits one question of one call only."""
        return {"action": "accept", "content": {"value": f"{self.name}/{question_number(asked)}"}}

    @property
    def state(self) -> str:
        """The token that the next request will carry."""
        state: str = self._retry["requestState"]
        return state

    @property
    def report(self) -> Json:
        """What the tool returned."""
        assert self.result is not None, f"{self.name} has not ended"
        assert not self.result.get("isError"), self.result
        report: Json = self.result["structuredContent"]
        return report


def question_number(asked: Json) -> int:
    """The number of a question."""
    found = re.search(r"question (\d+) of", asked["params"]["message"])
    assert found is not None
    return int(found[1])


def questions(call: Call) -> list[int]:
    """The numbers of the questions that were asked, in order."""
    return [question_number(asked) for result in call.asked for asked in result["inputRequests"].values()]
