"""A client that plays rounds one by one, and the servers it plays them against."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx2
import pytest
import uvicorn

from ekiden import Server
from ekiden.testing import CallFailed, Round, ScriptedClient
from tests.simulation.virtual_time import clock
from tests.warm import WarmProcess, python

PATIENCE = 30.0
"""Seconds after which anything that has not happened is taken never to happen."""

KEY = b"the first key: thirty-two bytes!"
OTHER_KEY = b"another key, as long as it must."
THIRD_KEY = b"and the third for the rotations!"

VERSION = "2026-07-28"
EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
BAD_STATE = "Invalid or expired requestState: restart the call"

T = TypeVar("T")


def new_server(name: str = "acceptance", **options: Any) -> Server:
    """A server with a key of its own, so that replicas of it understand each other."""
    return Server(name, **{"keys": [KEY], "clock": clock, **options})


async def soon(awaitable: Awaitable[T]) -> T:
    """What `awaitable` gives, if it gives it in time."""
    async with asyncio.timeout(PATIENCE):
        return await awaitable


class Client(ScriptedClient):
    """A scripted client with bounded waits that can also be led by the hand."""

    async def round(self, method: str, params: Mapping[str, Any]) -> Round:
        return await soon(super().round(method, params))

    async def ask(self, name: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Round:
        """One round of a tool call; `more` are further params, such as `inputResponses`."""
        return await self.round("tools/call", {"name": name, "arguments": dict(arguments or {}), **more})

    async def retry(
        self,
        last: Round,
        responses: Mapping[str, Any] | None = None,
        name: str = "tool",
        arguments: Mapping[str, Any] | None = None,
    ) -> Round:
        """The round after `last`, with these responses and its state."""
        more: dict[str, Any] = {}
        if responses is not None:
            more["inputResponses"] = dict(responses)
        if last.state is not None:
            more["requestState"] = last.state
        return await self.ask(name, arguments, **more)

    async def refused(
        self, name: str = "tool", arguments: Mapping[str, Any] | None = None, **more: Any
    ) -> CallFailed:
        """The error of a round that must fail."""
        with pytest.raises(CallFailed) as caught:
            await self.ask(name, arguments, **more)
        return caught.value


def text(result: Mapping[str, Any] | Round) -> str:
    """The text of a complete result that is no error."""
    final = result.result if isinstance(result, Round) else result
    assert final["resultType"] == "complete", final
    assert not final.get("isError"), final
    (block,) = final["content"]
    return str(block["text"])


def error_text(result: Mapping[str, Any] | Round) -> str:
    """The text of a tool's error."""
    final = result.result if isinstance(result, Round) else result
    assert final["resultType"] == "complete", final
    assert final.get("isError") is True, final
    (block,) = final["content"]
    return str(block["text"])


def only(asked: Round) -> str:
    """The key of the one question of a round."""
    (key,) = asked.requests
    return key


def messages(asked: Round) -> list[str]:
    """What the elicitations of a round say, sorted."""
    return sorted(request["params"]["message"] for request in asked.requests.values())


def key_of(asked: Round, message: str) -> str:
    """The key of the elicitation that says `message`."""
    (key,) = [k for k, r in asked.requests.items() if r.get("params", {}).get("message") == message]
    return key


def accept(content: Any = ..., /, **fields: Any) -> dict[str, Any]:
    """An `ElicitResult` that accepts; a single value, or fields."""
    return {"action": "accept", "content": {"value": content} if content is not ... else fields}


def said(words: str) -> dict[str, Any]:
    """A `CreateMessageResult` with text."""
    return {"role": "assistant", "model": "scripted", "content": {"type": "text", "text": words}}


def meta(capabilities: Mapping[str, Any] = EVERYTHING, **more: Any) -> dict[str, Any]:
    """The `_meta` that every modern request has."""
    return {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "acceptance", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": dict(capabilities),
        **more,
    }


def request(
    method: str,
    params: Mapping[str, Any],
    request_id: int | str = 1,
    capabilities: Mapping[str, Any] = EVERYTHING,
    **more_meta: Any,
) -> dict[str, Any]:
    """A whole JSON-RPC request."""
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": method,
        "params": {**params, "_meta": meta(capabilities, **more_meta)},
    }


def call(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    request_id: int | str = 1,
    capabilities: Mapping[str, Any] = EVERYTHING,
    **params: Any,
) -> dict[str, Any]:
    """A whole `tools/call` request."""
    return request(
        "tools/call", {"name": name, "arguments": dict(arguments or {}), **params}, request_id, capabilities
    )


class _Quiet(uvicorn.Server):
    """Leaves the signal handlers to pytest."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def served(server: Server, **asgi_options: Any) -> AsyncGenerator[str, None]:
    """Serve over HTTP in this process; yields the URL of the endpoint."""
    runner = _Quiet(uvicorn.Config(server.asgi(**asgi_options), log_config=None, access_log=False))
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        task = asyncio.create_task(runner.serve(sockets=[sock]))
        try:
            async with asyncio.timeout(PATIENCE):
                while not runner.started and not task.done():
                    await asyncio.sleep(0.005)
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
        finally:
            runner.should_exit = True
            await soon(task)


def headers_for(message: Mapping[str, Any]) -> dict[str, str]:
    """The HTTP headers that mirror a message."""
    params = message["params"]
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": message["method"],
    }
    if (name := params.get("name", params.get("uri"))) is not None:
        headers["mcp-name"] = name
    return headers


async def post(url: str, message: Mapping[str, Any], **headers: str) -> httpx2.Response:
    """Post one message over a connection of its own."""
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        return await client.post(
            url, content=json.dumps(message).encode(), headers={**headers_for(message), **headers}
        )


def told(response: httpx2.Response) -> list[dict[str, Any]]:
    """Every message of an HTTP response, of a stream or not."""
    if not response.headers["content-type"].startswith("text/event-stream"):
        return [response.json()]
    lines = response.text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


class Process:
    """A server in a process of its own, on stdio."""

    def __init__(self, process: "subprocess.Popen[bytes] | WarmProcess") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout
        self.said: list[dict[str, Any]] = []
        """Every message that the server has written."""

    async def send(self, message: Mapping[str, Any]) -> None:
        def write() -> None:
            self.stdin.write(json.dumps(message).encode() + b"\n")
            self.stdin.flush()

        await soon(asyncio.to_thread(write))

    async def receive(self) -> dict[str, Any]:
        line = await soon(asyncio.to_thread(self.stdout.readline))
        assert line, "the server has closed its output"
        message: dict[str, Any] = json.loads(line)
        self.said.append(message)
        return message

    async def exchange(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request; its response."""
        await self.send(message)
        while "method" in (reply := await self.receive()):
            pass
        assert reply["id"] == message["id"]
        return reply

    async def ended(self) -> int:
        """Wait until it is gone; its return code."""
        return await asyncio.to_thread(self.process.wait, PATIENCE)

    async def killed(self) -> None:
        """Kill it as the out-of-memory killer does, and wait until it is gone."""
        self.process.kill()
        await self.ended()


@asynccontextmanager
async def process(source: str, *arguments: str, **environment: str) -> AsyncGenerator[Process, None]:
    """Run `source`, a script that serves stdio."""
    settings = {**os.environ, **environment}
    child = Process(
        python("-c", source, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=settings)
    )
    try:
        yield child
    finally:
        await child.killed()
        child.stdin.close()
        child.stdout.close()
