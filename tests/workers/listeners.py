"""Clients of both eras that listen for changes, each over one connection, and so to one worker."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2

from .calls import META, VERSION

Json = dict[str, Any]

PATIENCE = 30.0
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


def http() -> httpx2.AsyncClient:
    """A client that keeps to one connection."""
    return httpx2.AsyncClient(timeout=PATIENCE, trust_env=False, limits=httpx2.Limits(max_connections=1))


def modern(method: str, **params: Any) -> tuple[Json, dict[str, str]]:
    """A request of 2026, and its headers."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    named = {"mcp-name": params["name"]} if "name" in params else {}
    return message, {**ACCEPT, "mcp-protocol-version": VERSION, "mcp-method": method, **named}


async def call(port: int, tool: str, client: httpx2.AsyncClient | None = None, **arguments: str) -> int:
    """Call a tool over a new connection, or that of a client; the process that answered."""
    message, headers = modern("tools/call", name=tool, arguments=arguments)
    if client is None:
        async with http() as client:
            response = await client.post(url(port), json=message, headers=headers)
    else:
        response = await client.post(url(port), json=message, headers=headers)
    return int(response.json()["result"]["content"][0]["text"])


class Listener:
    """One open stream of changes."""

    def __init__(self, pid: int, lines: Any) -> None:
        self.pid = pid
        """The worker that has the stream."""
        self.heard: list[Json] = []
        self._changed = asyncio.Event()
        self._lines = lines

    async def message(self) -> Json:
        """The next message of the stream."""
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if line.startswith("data: {"):
                    message: Json = json.loads(line.removeprefix("data: "))
                    return message
        raise AssertionError("the stream ended")

    async def collect(self) -> None:
        """Collect changes until cancelled."""
        async for line in self._lines:
            if line.startswith("data: {"):
                self.heard.append(json.loads(line.removeprefix("data: ")))
                self._changed.set()

    @property
    def uris(self) -> list[str]:
        """The resources that changed, in order."""
        return [
            change["params"]["uri"]
            for change in self.heard
            if change["method"] == "notifications/resources/updated"
        ]

    @property
    def lists(self) -> set[str]:
        """The lists that changed."""
        return {change["method"] for change in self.heard if change["method"].endswith("list_changed")}

    async def until_heard(self, *, uris: int, lists: int = 0) -> None:
        """Wait until so many different changes have come."""
        try:
            async with asyncio.timeout(PATIENCE):
                while len(set(self.uris)) < uris or len(self.lists) < lists:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"heard {len(set(self.uris))} of {uris}, and {self.lists}") from None


@asynccontextmanager
async def listening_2026(port: int, uris: list[str]) -> AsyncGenerator[Listener, None]:
    """A subscription of 2026."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(http())
        pid = await call(port, "who", client)
        wanted = {"resourceSubscriptions": uris, "promptsListChanged": True}
        message, headers = modern("subscriptions/listen", notifications=wanted)
        stream = client.stream("POST", url(port), json=message, headers=headers)
        response = await stack.enter_async_context(stream)
        listener = Listener(pid, response.aiter_lines())
        assert (await listener.message())["method"] == "notifications/subscriptions/acknowledged"
        await _collecting(stack, listener)
        yield listener


@asynccontextmanager
async def listening_2025(port: int, uris: list[str]) -> AsyncGenerator[Listener, None]:
    """A session of 2025 with its stream of notifications."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(http())
        session = await open_session(client, port)
        headers = {**ACCEPT, "mcp-session-id": session}
        message: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who"}}
        response = await client.post(url(port), json=message, headers=headers)
        pid = int(response.json()["result"]["content"][0]["text"])
        stream = client.stream("GET", url(port), headers={**headers, "accept": "text/event-stream"})
        listener = Listener(pid, (await stack.enter_async_context(stream)).aiter_lines())
        async with http() as other:
            for uri in uris:
                message = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": uri}}
                assert "result" in (await other.post(url(port), json=message, headers=headers)).json()
        await _collecting(stack, listener)
        yield listener


async def _collecting(stack: AsyncExitStack, listener: Listener) -> None:
    collecting = asyncio.create_task(listener.collect())

    async def end() -> None:
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)

    stack.push_async_callback(end)


async def open_session(
    client: httpx2.AsyncClient, port: int, capabilities: Json | None = None, ready_at: int | None = None
) -> str:
    """The id of a new session of 2025. `ready_at` is where the client says that it is ready."""
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities or {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    message: Json = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    response = await client.post(url(port), json=message, headers=ACCEPT)
    assert response.status_code == 200, response.text
    session: str = response.headers["mcp-session-id"]
    message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    accepted = await client.post(
        url(ready_at or port), json=message, headers={**ACCEPT, "mcp-session-id": session}
    )
    assert accepted.status_code == 202
    return session
