"""stdio, server side: one JSON-RPC message per line (basic/transports: stdio).

The protocol owns the real stdin and stdout. While it is served, descriptor 0 is empty, and descriptor
1 and `sys.stdout` point to stderr, so that neither a `print` in a handler nor a chatty child process
can break a line.
Reading and writing happen in two threads of their own, so that pipes, files and terminals can all block
there, and none of them has to be switched to non-blocking mode for other processes that use it.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ekiden.errors import ParseError
from ekiden.transports.server.conversation import Conversation
from ekiden.transports.server.port import Endpoint
from ekiden.wire.jsonrpc import error_response

__all__ = ["serve_stdio"]

MAX_LINE: Final = 4 * 1024 * 1024
"""As the limit of an HTTP body: a longer line is answered with an error and skipped."""

_CHUNK: Final = 64 * 1024
_AHEAD: Final = 64
"""Lines read ahead of what is being answered; then the pipe fills and the client waits."""


async def serve_stdio(endpoint: Endpoint, *, grace: float = 10.0) -> None:
    """Serve until stdin ends, or until cancelled; running requests then finish within `grace` seconds.

    Meanwhile messages are still read: the client may cancel a request, or answer a question.
    """
    with _owned_pipes() as (stdin, stdout), ThreadPoolExecutor(1, "ekiden-stdout") as writer:
        lock = asyncio.Lock()
        loop = asyncio.get_running_loop()

        async def send(message: bytes) -> None:
            async with lock:
                await loop.run_in_executor(writer, _write_line, stdout, message)

        await endpoint.start()
        conversation = Conversation(endpoint, send)
        reading = loop.create_task(_read(_Lines(stdin), conversation, send))
        try:
            await asyncio.wait({reading})
            if isinstance(reading.exception(), BrokenPipeError):
                grace = 0.0  # The client reads no more answers.
        finally:
            endpoint.drain()
            await conversation.close(grace)
            reading.cancel()
            await asyncio.wait({reading})
            await endpoint.stop()
        with contextlib.suppress(BrokenPipeError):
            reading.result()


async def _read(
    lines: "_Lines", conversation: Conversation, send: Callable[[bytes], Awaitable[None]]
) -> None:
    async for line in lines:
        if line is None:
            await send(error_response(None, ParseError(f"Line too long: the limit is {MAX_LINE}")))
        elif line.strip():
            await conversation.receive(line)


@contextlib.contextmanager
def _owned_pipes() -> Generator[tuple[int, int], None, None]:
    """The real stdin and stdout as descriptors of our own.

    Everyone else reads nothing and prints to stderr meanwhile: child processes inherit 0 and 1, and one
    that reads its input would eat messages.
    """
    sys.stdout.flush()
    stdin, stdout, python_stdout = os.dup(0), os.dup(1), sys.stdout
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123  a descriptor is wanted
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        yield stdin, stdout
    finally:
        for stream in (python_stdout, sys.__stdout__):
            if stream is not None and not stream.closed:
                stream.flush()  # What is left in its buffer must not reach the client.
        sys.stdout = python_stdout
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.close(stdout)


def _write_line(descriptor: int, line: bytes) -> None:
    if len(line) <= _CHUNK:
        _write_all(descriptor, line + b"\n")
    else:  # A copy would take as much again.
        _write_all(descriptor, line)
        _write_all(descriptor, b"\n")


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class _Lines:
    """The lines of a descriptor, read by a daemon thread; None stands for one that was too long."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | EOFError | None] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        # A daemon: a blocked read must not keep the process from ending.
        threading.Thread(target=self._read, name="ekiden-stdin", daemon=True).start()

    def __aiter__(self) -> "_Lines":
        return self

    async def __anext__(self) -> bytes | None:
        line = await self._queue.get()
        if isinstance(line, EOFError):
            raise StopAsyncIteration
        self._room.release()
        return line

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop was closed while we waited for input.
            for line in _split(self._descriptor):
                self._room.acquire()
                self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
            self._loop.call_soon_threadsafe(self._queue.put_nowait, EOFError())


def _split(descriptor: int) -> Iterator[bytes | None]:
    buffer = bytearray()
    skipping = False
    while chunk := os.read(descriptor, _CHUNK):
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            buffer += chunk[start:end]
            yield None if skipping or len(buffer) > MAX_LINE else bytes(buffer)
            buffer.clear()
            skipping = False
            start = end + 1
        buffer += chunk[start:]
        if len(buffer) > MAX_LINE:
            buffer.clear()
            skipping = True
    if buffer and not skipping:
        yield bytes(buffer)
