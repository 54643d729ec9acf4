"""Servers that tests talk to over real sockets and pipes, and the messages to send them.

Every wait in here is bounded by `PATIENCE`, so that a server which hangs fails its test.
"""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx2
import uvicorn

from ekiden import Server
from ekiden.transports.server.asgi import StreamableHTTP
from ekiden.transports.server.http1.connections import Connections
from scripts.ports import free_port
from tests import warm

PATIENCE = 30.0
"""Seconds after which anything that has not happened is taken never to happen."""

VERSION = "2026-07-28"

T = TypeVar("T")


async def soon(awaitable: Awaitable[T]) -> T:
    """What `awaitable` gives, if it gives it in time."""
    async with asyncio.timeout(PATIENCE):
        return await awaitable


# Messages


def meta(**more: Any) -> dict[str, Any]:
    """The `_meta` that every modern request needs, with more keys where a test wants them."""
    return {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
        **more,
    }


def request(
    method: str, params: Mapping[str, Any] | None = None, *, request_id: int | str = 1, **more_meta: Any
) -> dict[str, Any]:
    """A modern request in order."""
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": method,
        "params": {**(params or {}), "_meta": meta(**more_meta)},
    }


def call(
    name: str, arguments: Mapping[str, Any] | None = None, *, request_id: int | str = 1, **more_meta: Any
) -> dict[str, Any]:
    """A `tools/call` request."""
    return request(
        "tools/call", {"name": name, "arguments": dict(arguments or {})}, request_id=request_id, **more_meta
    )


def notification(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}


def headers_for(message: Mapping[str, Any]) -> dict[str, str]:
    """The HTTP headers that mirror `message`."""
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": message["method"],
    }
    params = message.get("params", {})
    if (name := params.get("name", params.get("uri"))) is not None:
        headers["mcp-name"] = name
    return headers


# In memory


async def exchange(server: Server, message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Everything that a server in memory says to one request; the response comes last."""
    async with asyncio.timeout(PATIENCE), server.connect() as channel:
        await channel.send(dict(message))
        said = [await channel.receive()]
        while "method" in said[-1]:
            said.append(await channel.receive())
        return said


async def ask(
    server: Server, method: str, params: Mapping[str, Any] | None = None, **more_meta: Any
) -> dict[str, Any]:
    """The response of a server in memory."""
    return (await exchange(server, request(method, params, **more_meta)))[-1]


async def result_of(server: Server, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The result of a request that must not fail, without what every result has."""
    response = await ask(server, method, params)
    assert "result" in response, response
    result: dict[str, Any] = response["result"]
    assert result.pop("resultType") == "complete"
    result.pop("_meta")
    return result


async def error_of(server: Server, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON-RPC error of a request that must fail."""
    response = await ask(server, method, params)
    assert "error" in response, response
    error: dict[str, Any] = response["error"]
    return error


async def call_tool(server: Server, name: str, /, **arguments: Any) -> dict[str, Any]:
    """The `CallToolResult` of a call in memory."""
    return await result_of(server, "tools/call", {"name": name, "arguments": arguments})


async def listed_tool(server: Server, name: str) -> dict[str, Any]:
    """A tool's definition as clients see it."""
    tools = (await result_of(server, "tools/list"))["tools"]
    (definition,) = [tool for tool in tools if tool["name"] == name]
    return definition


# Over HTTP


def listening_socket(port: int | None = None) -> socket.socket:
    """A socket that listens on a free port of 127.0.0.1, or on the one that is wanted."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, port is not None)
    sock.bind(("127.0.0.1", free_port() if port is None else port))
    sock.listen(2048)
    return sock


class _Uvicorn(uvicorn.Server):
    """Leaves the signal handlers to pytest, and drains subscriptions as `Server.run` does."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if isinstance(self.config.app, StreamableHTTP):
            self.config.app.endpoint.drain()
        await super().shutdown(sockets)


class _Complaints(logging.Handler):
    """What uvicorn and asyncio log as errors: faults that no client gets to see."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(logging.Formatter().format(record))


@contextmanager
def no_complaints() -> Generator[None, None, None]:
    """Fail if uvicorn or asyncio log an error meanwhile."""
    complaints = _Complaints()
    loggers = [logging.getLogger("uvicorn.error"), logging.getLogger("asyncio")]
    for logger in loggers:
        logger.addHandler(complaints)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(complaints)
    assert not complaints.seen, "\n".join(complaints.seen)


@asynccontextmanager
async def served(
    what: Any,
    *,
    quiet: bool = True,
    grace: int = 5,
    mounted: bool = False,
    port: int | None = None,
    parser: str = "httptools",
    **asgi_options: Any,
) -> AsyncGenerator[str, None]:
    """Serve a `Server` or an ASGI application in this process; yields its base URL.

    `quiet`: the test fails if uvicorn or asyncio log an error meanwhile. `mounted`: a server is served
    as any ASGI application would be, and not as `Server.run` does it. `port`: this one, and not any.
    `parser`: uvicorn's for HTTP, unless the connections are our own.
    """
    application: Any = what.asgi(**asgi_options) if isinstance(what, Server) else what
    own = isinstance(application, StreamableHTTP) and not mounted
    http: Any = Connections(application) if own else parser
    config = uvicorn.Config(
        application,
        http=http,
        lifespan="on" if isinstance(application, StreamableHTTP) else "auto",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=grace,
    )
    runner = _Uvicorn(config)
    with no_complaints() if quiet else contextlib.nullcontext(), listening_socket(port) as sock:
        task = asyncio.create_task(runner.serve(sockets=[sock]))
        try:
            async with asyncio.timeout(PATIENCE):
                while not runner.started and not task.done():
                    await asyncio.sleep(0.005)
            assert runner.started, "the server did not start; see the log"
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            runner.should_exit = True
            async with asyncio.timeout(PATIENCE + grace):
                await task


async def post(
    base: str, message: Mapping[str, Any], *, path: str = "/mcp", **more_headers: str
) -> httpx2.Response:
    """Post one message over a connection of its own, with the headers that mirror it."""
    headers = {**headers_for(message), **{k.replace("_", "-"): v for k, v in more_headers.items()}}
    return await post_raw(base, json.dumps(message).encode(), headers, path=path)


async def post_raw(
    base: str, body: Any, headers: Mapping[str, str], *, path: str = "/mcp", method: str = "POST"
) -> httpx2.Response:
    """Send anything at all over a connection of its own."""
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        return await client.request(method, base + path, content=body, headers=dict(headers))


def frames(text: str) -> list[str]:
    """The frames of an SSE stream, events and comments alike."""
    assert text.endswith("\n\n"), f"the stream ends within a frame: {text[-200:]!r}"
    return text[:-2].split("\n\n")


def events(text: str) -> list[dict[str, Any]]:
    """The messages of an SSE stream; anything between events but a comment is an error."""
    messages: list[dict[str, Any]] = []
    for frame in frames(text):
        if frame.startswith(":"):
            continue
        kind, data = frame.split("\n")
        assert kind == "event: message"
        messages.append(json.loads(data.removeprefix("data: ")))
    return messages


class RawClient:
    """A connection without a polite HTTP library in between."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, message: Mapping[str, Any], *, host: str = "127.0.0.1") -> None:
        """Send a whole request."""
        body = json.dumps(message).encode()
        await self.send_head(headers_for(message) | {"content-length": str(len(body))}, host=host)
        self.writer.write(body)
        await self.writer.drain()

    async def send_head(self, headers: Mapping[str, str], *, host: str = "127.0.0.1") -> None:
        """Send the head of a POST only."""
        lines = ["POST /mcp HTTP/1.1", f"host: {host}", *(f"{k}: {v}" for k, v in headers.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())
        await self.writer.drain()

    async def read_until(self, mark: bytes) -> bytes:
        """Read up to and including `mark`."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readuntil(mark)

    async def read_to_end(self) -> bytes:
        """Read until the server closes the connection."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.read()

    def abort(self) -> None:
        """Leave without a word."""
        self.writer.transport.abort()


@asynccontextmanager
async def raw_client(base: str, *, receive_buffer: int | None = None) -> AsyncGenerator[RawClient, None]:
    """Connect to a served server; `receive_buffer` makes it a client that takes little at once."""
    host, _, port = base.removeprefix("http://").partition(":")
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)
    try:
        await soon(asyncio.get_running_loop().sock_connect(sock, (host, int(port))))
    except OSError:
        sock.close()
        raise
    reader, writer = await asyncio.open_connection(sock=sock, limit=receive_buffer or 2**16)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


# Processes of their own


class Spawned:
    """A server in a process of its own, on HTTP."""

    def __init__(self, process: asyncio.subprocess.Process, base: str) -> None:
        self.process = process
        self.base = base
        self.stderr = b""

    async def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the process to end; gives its return code."""
        self.process.send_signal(sig)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for the process to end; gives its return code and leaves its log in `stderr`."""
        async with asyncio.timeout(PATIENCE):
            _, self.stderr = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def spawned(source: str, *, forked: bool = True) -> AsyncGenerator[Spawned, None]:
    """Run `source`, a script that serves HTTP on the port in `sys.argv[1]`.

    One that is not forked is the process itself: its memory is its own, and every signal reaches it.
    """
    port = free_port()
    words = ["-c", source, str(port)]
    command = warm.command(*words) if forked else [sys.executable, *words]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not _accepts(port):
                assert process.returncode is None, "the server did not start"
                await asyncio.sleep(0.02)
        yield Spawned(process, f"http://127.0.0.1:{port}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
