"""A client of 2025 that hides nothing: every HTTP exchange is made by hand."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from tests.serving import PATIENCE

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}

Message = dict[str, Any]


def hello(version: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None) -> Message:
    params = {
        "protocolVersion": version,
        "capabilities": dict(EVERYTHING if capabilities is None else capabilities),
        "clientInfo": {"name": "old", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def request(method: str, params: Mapping[str, Any] | None = None, *, id: int | str = 1) -> Message:  # noqa: A002
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": dict(params or {})}


def call(tool: str, *, id: int | str = 1, meta: Mapping[str, Any] | None = None, **arguments: Any) -> Message:  # noqa: A002
    params: Message = {"name": tool, "arguments": arguments}
    return request("tools/call", params if meta is None else {**params, "_meta": dict(meta)}, id=id)


def notification(method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(number: Any, **fields: Any) -> Message:
    return {"jsonrpc": "2.0", "id": number, "result": fields}


def accepted(number: Any, **content: Any) -> Message:
    return result(number, action="accept", content=content)


class Event:
    """One server-sent event."""

    def __init__(self, lines: list[str]) -> None:
        fields = dict(line.split(": ", 1) for line in lines if ": " in line and not line.startswith(":"))
        self.id = fields.get("id")
        self.retry = fields.get("retry")
        self.message: Message | None = json.loads(fields["data"]) if fields.get("data") else None


async def events(response: httpx2.Response) -> AsyncIterator[Event]:
    """The events of a stream, comments left out."""
    lines: list[str] = []
    async for line in response.aiter_lines():
        if line:
            lines.append(line)
        elif lines:
            if not all(line.startswith(":") for line in lines):
                yield Event(lines)
            lines = []


class OldClient:
    """One session of a client of 2025."""

    def __init__(self, base: str, http: httpx2.AsyncClient) -> None:
        self.url = base + "/mcp"
        self.http = http
        self.version = ""
        self.session: str | None = None
        self.more: dict[str, str] = {}

    @property
    def headers(self) -> dict[str, str]:
        named = {} if self.session is None else {"mcp-session-id": self.session}
        if self.version and self.version not in ("2025-03-26", "2024-11-05"):
            named["mcp-protocol-version"] = self.version
        return {**ACCEPT, **named, **self.more}

    async def open(
        self, version: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None
    ) -> Message:
        """Shake hands; the result of `initialize`."""
        response = await self.http.post(
            self.url, json=hello(version, capabilities), headers={**ACCEPT, **self.more}
        )
        assert response.status_code == 200, response.text
        welcome: Message = response.json()["result"]
        self.version = welcome["protocolVersion"]
        self.session = response.headers.get("mcp-session-id")
        assert (await self.send(notification("notifications/initialized"))).status_code == 202
        return welcome

    async def send(self, message: Any, **headers: str) -> httpx2.Response:
        """POST one message; the whole response."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(self.url, json=message, headers={**self.headers, **named})

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """The JSON-RPC response to a request that is not asked back."""
        return await self.answered(request(method, params))

    async def answered(self, message: Message, *answers: Any) -> Message:
        """The response to a request; what the server asks meanwhile is answered with `answers`, in turn."""
        *_, last = await self.talk(message, *answers)
        return last

    async def talk(self, message: Message, *answers: Any) -> list[Message]:
        """All messages that a request brings, the response last."""
        said: list[Message] = []
        left = list(answers)
        async with self.posting(message) as response:
            assert response.status_code == 200, (response.status_code, await response.aread())
            if response.headers["content-type"] == "application/json":
                return [json.loads(await response.aread())]
            async for event in events(response):
                if event.message is None:
                    continue
                said.append(event.message)
                if "method" in event.message and "id" in event.message:
                    answer = left.pop(0)
                    answer = answer(event.message) if callable(answer) else answer
                    if answer is not None:
                        assert (await self.send(answer)).status_code == 202
        return said

    @asynccontextmanager
    async def posting(self, message: Message) -> AsyncGenerator[httpx2.Response, None]:
        async with self.http.stream("POST", self.url, json=message, headers=self.headers) as response:
            yield response

    @asynccontextmanager
    async def listening(self, last_event_id: str | None = None) -> AsyncGenerator[httpx2.Response, None]:
        """GET a stream."""
        headers = {**self.headers, "accept": "text/event-stream"}
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        async with self.http.stream("GET", self.url, headers=headers) as response:
            yield response

    async def end(self) -> httpx2.Response:
        return await self.http.delete(self.url, headers=self.headers)


@asynccontextmanager
async def old_client(base: str, **opening: Any) -> AsyncGenerator[OldClient, None]:
    """A client that has shaken hands."""
    async with raw_client(base) as client:
        await client.open(**opening)
        yield client


@asynccontextmanager
async def raw_client(base: str, *, seconds: float = 3 * PATIENCE) -> AsyncGenerator[OldClient, None]:
    """A client that has not."""
    async with asyncio.timeout(seconds), httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
        yield OldClient(base, http)


def text(response: Message) -> str:
    """The text of a tool's result."""
    (block,) = response["result"]["content"]
    said: str = block["text"]
    return said
