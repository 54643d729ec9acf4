"""A client of 2025 without a place: each of its messages may go to another process."""

import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from .listeners import ACCEPT, PATIENCE, Json, open_session, url

CAPABILITIES = {"elicitation": {"form": {}}}


class Stream:
    """An open stream of events."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.last_id: str | None = None
        """The id of the last event that was read."""

    async def message(self) -> Json:
        """The next message."""
        async for line in self._lines:
            if line.startswith("id: "):
                self.last_id = line.removeprefix("id: ")
            elif line.startswith("data: {"):
                message: Json = json.loads(line.removeprefix("data: "))
                return message
        raise EOFError("the stream ended")

    async def until(self, method: str) -> Json:
        """The next message of a method."""
        while (message := await self.message()).get("method") != method:
            assert "method" in message, message
        return message


class OldSession:
    """One session. `user` is sent along, as whoever it is."""

    def __init__(self, session_id: str, user: str = "") -> None:
        self.id = session_id
        self._ids = itertools.count(1)
        self.headers = {**ACCEPT, "mcp-session-id": session_id, "x-user": user}

    @classmethod
    async def open(cls, port: int, ready_at: int | None = None) -> "OldSession":
        """Open a session at one process, and say that the client is ready at another."""
        async with client() as http:
            return cls(await open_session(http, port, CAPABILITIES, ready_at=ready_at))

    async def post(self, port: int, message: Json) -> httpx2.Response:
        """Send a message."""
        async with client() as http:
            return await http.post(url(port), json=message, headers=self.headers)

    def request(self, method: str, **params: Any) -> Json:
        """A request with an id of its own."""
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    async def call(self, port: int, tool: str, **arguments: str) -> str:
        """Call a tool that asks nothing; its text."""
        response = await self.post(port, self.request("tools/call", name=tool, arguments=arguments))
        assert response.status_code == 200, response.text
        text: str = response.json()["result"]["content"][0]["text"]
        return text

    @asynccontextmanager
    async def calling(self, port: int, tool: str, **arguments: str) -> AsyncGenerator[Stream, None]:
        """Call a tool; the stream of the call."""
        message = self.request("tools/call", name=tool, arguments=arguments)
        message["params"]["_meta"] = {"progressToken": 1}
        stream = {"accept": "text/event-stream, application/json"}
        async with (
            client() as http,
            http.stream("POST", url(port), json=message, headers={**self.headers, **stream}) as response,
        ):
            assert response.status_code == 200, response.status_code
            yield Stream(response.aiter_lines())

    @asynccontextmanager
    async def getting(self, port: int, last_id: str | None = None) -> AsyncGenerator[Stream, None]:
        """GET a stream: that for changes, or the rest of one that broke off."""
        headers = {**self.headers, "accept": "text/event-stream"}
        if last_id is not None:
            headers["last-event-id"] = last_id
        async with client() as http, http.stream("GET", url(port), headers=headers) as response:
            assert response.status_code == 200, response.status_code
            yield Stream(response.aiter_lines())

    async def answer(self, port: int, asked: Json, value: str) -> int:
        """Answer a question; the HTTP status."""
        result = {"action": "accept", "content": {"value": value}}
        return (await self.post(port, {"jsonrpc": "2.0", "id": asked["id"], "result": result})).status_code


def client() -> httpx2.AsyncClient:
    """A client for one connection."""
    return httpx2.AsyncClient(timeout=PATIENCE, trust_env=False)
