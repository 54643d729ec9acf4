"""The requests of one POST of a client of 2025, on their way to their responses.

They run apart from their connection: in 2025 a lost connection cancels nothing. The
responses are plain JSON, unless another message is sent first: that makes it a stream.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ekiden.errors import EnvelopeError, InternalError, StatusError
from ekiden.transports.server.legacy.events import EventStream
from ekiden.transports.server.legacy.kept import Hold
from ekiden.wire.jsonrpc import RequestId, error_response

__all__ = ["Post"]

_MOST: Final = 32 * 1024 * 1024
"""Bytes of the responses that one batch may have: they are sent as one text. The last one may exceed it."""
_TOO_MUCH: Final = "The responses of this batch are too large to wait for one another: send single requests"


class Post:
    """Implements `ekiden.transports.server.legacy.port.Line` for all requests of one POST."""

    def __init__(self, open_stream: Callable[[], EventStream], hold: Hold, *, can_stream: bool) -> None:
        self._hold = hold
        self.can_stream = can_stream
        self.stream: EventStream | None = None
        self._responses: list[tuple[RequestId | None, bytes]] = []
        """The responses so far, where they are not in the stream."""
        self.failure: StatusError | None = None
        """Set if a request has failed with an error that has an HTTP status of its own."""
        self._open_stream = open_stream
        self._waiting: dict[RequestId, None] = {}
        """The requests that have no response yet."""
        self._running = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._when_done: Callable[[], None] | None = None

    def when_done(self, call: Callable[[], None]) -> None:
        """Call a function when all requests have ended, once. Call this when all of them have begun."""
        if self.done:
            call()
        else:
            self._when_done = call

    @property
    def done(self) -> bool:
        """Whether all requests have ended."""
        return not self._running

    def run(self, request_id: RequestId, answer: Coroutine[Any, Any, bytes]) -> "asyncio.Task[None]":
        """Begin to answer a request."""
        self._running += 1
        self._waiting[request_id] = None
        task = asyncio.get_running_loop().create_task(self._answer(request_id, answer))
        self._tasks.append(task)
        return task

    def refuse(self, broken: EnvelopeError) -> None:
        """Answer a message of a batch that cannot be read. Call this before anything is sent."""
        self._responses.append((broken.request_id, error_response(broken.request_id, broken)))

    @property
    def responses(self) -> list[bytes]:
        """The responses so far, where they are not in a stream."""
        return [response for _, response in self._responses]

    is_read = True
    """Its client waits for it."""

    def _count(self) -> None:
        """Responses that wait for others are held."""
        size = 0 if self.done else sum(len(response) for _, response in self._responses)
        if size > _MOST:
            self.give_up()
        else:
            self._hold(self, size)

    def give_up(self) -> None:
        """Hold none of the responses so far: others need the memory."""
        error = InternalError(_TOO_MUCH)
        self._responses = [(each, error_response(each, error)) for each, _ in self._responses]
        self._hold(self, 0)

    def cancel(self) -> None:
        """Cancel all requests: their client cannot get the responses any more."""
        for task in self._tasks:
            task.cancel()

    async def _answer(self, request_id: RequestId, answer: Coroutine[Any, Any, bytes]) -> None:
        try:
            response = await answer
            if not response:
                pass  # It is not to be sent.
            elif self.stream is None:
                self._responses.append((request_id, response))
            else:
                self.stream.append(response)
        except asyncio.CancelledError:
            pass  # Cancelled by its client, or with its session: there is no response.
        finally:
            self._running -= 1
            self._waiting.pop(request_id, None)
            self._count()
            if self.done and self.stream is not None:
                self.stream.end()
            if self.done and self._when_done is not None:
                self._when_done()
                self._when_done = None
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
            self.stream.waiting = self._waiting
            for response in self.responses:
                self.stream.append(response)
            self._responses.clear()
            self._count()
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

    def fail(self, error: StatusError) -> None:
        """Answer with the HTTP status and the headers of an error, if no stream has begun."""
        self.failure = error

    def hang_up(self) -> None:
        """Close the connection as soon as the client can come back for the rest."""
        if self.can_stream and not self.done:
            self.begin().hang_up()
