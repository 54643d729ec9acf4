"""The requests of one POST of a client of 2025, on their way to their responses.

They run apart from their connection: in 2025 a lost connection cancels nothing. The
responses are plain JSON, unless another message is sent first: that makes it a stream.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ekiden.transports.server.legacy.events import EventStream

__all__ = ["Post"]


class Post:
    """Implements `ekiden.transports.server.legacy.port.Line` for all requests of one POST."""

    def __init__(self, open_stream: Callable[[], EventStream], *, can_stream: bool) -> None:
        self.can_stream = can_stream
        self.stream: EventStream | None = None
        self.responses: list[bytes] = []
        """The responses so far, where they are not in the stream."""
        self._open_stream = open_stream
        self._waiting = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    @property
    def done(self) -> bool:
        """Whether all requests have ended."""
        return not self._waiting

    def run(self, answer: Coroutine[Any, Any, bytes]) -> "asyncio.Task[None]":
        """Begin to answer a request."""
        self._waiting += 1
        task = asyncio.get_running_loop().create_task(self._answer(answer))
        self._tasks.append(task)
        return task

    def cancel(self) -> None:
        """Cancel all requests: their client cannot get the responses any more."""
        for task in self._tasks:
            task.cancel()

    async def _answer(self, answer: Coroutine[Any, Any, bytes]) -> None:
        try:
            response = await answer
            if self.stream is None:
                self.responses.append(response)
            else:
                self.stream.append(response)
        except asyncio.CancelledError:
            pass  # Cancelled by its client, or with its session: there is no response.
        finally:
            self._waiting -= 1
            if self.done and self.stream is not None:
                self.stream.end()
            self._changed.set()

    async def settled(self, seconds: float) -> None:
        """Wait until all is answered, or a stream has begun. After `seconds` one is begun."""
        try:
            async with asyncio.timeout(seconds if self.can_stream else None):
                while not self.done and self.stream is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self.begin()

    def begin(self) -> EventStream:
        """Answer with a stream."""
        if self.stream is None:
            self.stream = self._open_stream()
            for response in self.responses:
                self.stream.append(response)
            self.responses.clear()
            if self.done:
                self.stream.end()
            self._changed.set()
        return self.stream

    async def send(self, message: bytes) -> None:
        """Send a message besides the responses."""
        if self.can_stream and not self.done:
            stream = self.begin()
            stream.append(message)
            await stream.has_room()
        else:
            await asyncio.sleep(0)

    def hang_up(self) -> None:
        """Close the connection as soon as the client can come back for the rest."""
        if self.can_stream and not self.done:
            self.begin().hang_up()
