"""A client of 2025 on one ordered channel: what stdio and memory have in common with it.

The opening message decides: after an `initialize` the channel is one session, until it is closed.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Final

from ekiden.errors import EnvelopeError, InternalError, ProtocolError, StatusError
from ekiden.signals import SessionsFull
from ekiden.transports.server.large.outbox import Outbox
from ekiden.transports.server.large.results import TOO_MUCH
from ekiden.transports.server.legacy.port import ClientSession, SessionKeeper
from ekiden.wire import jsonrpc
from ekiden.wire.handshake import Response, read_incoming
from ekiden.wire.jsonrpc import Message, RequestId
from ekiden.wire.principal import Principal

__all__ = ["MAX_IN_FLIGHT", "SHUTTING_DOWN", "ChannelSession", "weight_of_line"]

SHUTTING_DOWN: Final = "The server is shutting down"
MAX_IN_FLIGHT: Final = 1024
"""Requests that may run at once on one channel. Those of long lines count as several."""
_SHORT_LINE: Final = 64 * 1024
_ROOM_SECONDS: Final = 5.0
"""How long a request waits, and all that comes after it, if so many run."""
_TOO_MANY: Final = "Too many requests are running on this connection: wait until some of them have ended"


def weight_of_line(data: bytes) -> int:
    """For how many requests a line counts: all that run at once have 64 MiB of lines."""
    return 1 + len(data) // _SHORT_LINE


class ChannelSession:
    """Carries the messages of one session. Implements `ekiden.transports.server.legacy.port.Line`."""

    can_stream = True

    def __init__(self, session: ClientSession, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._session = session
        self._write = write
        self._outbox = Outbox(write)
        self._running: set[asyncio.Task[None]] = set()
        self._in_flight = 0
        self._refusing = 0
        """Refusals that the client has not taken yet."""
        self._freed = asyncio.Event()
        """Set when a request has ended."""
        self._stuck = False
        """Whether there was no room for long, and none of what runs has ended since."""
        self._telling: asyncio.Task[None] | None = None
        self._closing = False

    @classmethod
    async def begin(
        cls,
        keeper: SessionKeeper,
        message: Message,
        write: Callable[[bytes], Awaitable[None]],
        principal: Principal | None = None,
    ) -> "ChannelSession | None":
        """Answer an `initialize`; None if it was refused."""
        try:
            session, response = await keeper.welcome(message, None)
        except ProtocolError as error:
            await write(jsonrpc.error_response(message.id, error))
            return None
        if response:
            await write(response)
        if session is None:
            return None
        session.local = principal
        return cls(session, write)

    async def receive(self, data: bytes) -> None:
        """Take one line."""
        try:
            incoming, batch = read_incoming(data, self._session.version)
        except ProtocolError as error:
            await self._write(jsonrpc.error_response(None, error))
            return
        requests: list[Message] = []
        broken: list[bytes] = []
        for message in incoming:
            if isinstance(message, EnvelopeError):
                if not message.notification:
                    broken.append(jsonrpc.error_response(message.request_id, message))
            elif isinstance(message, Response):
                await self._session.take(message, None)
            elif message.id is None:
                await self._notified(message)
            elif self._closing:
                broken.append(jsonrpc.error_response(message.id, InternalError(SHUTTING_DOWN)))
            else:
                requests.append(message)
        await self._begin(requests, broken, batch, max(len(requests) + len(broken), weight_of_line(data)))

    async def _begin(self, requests: list[Message], broken: list[bytes], batch: bool, weight: int) -> None:
        """Answer what came in one line, in a task of its own; or refuse it if there is no room."""
        if requests and not await self._has_room(weight):
            broken += [jsonrpc.error_response(each.id, InternalError(_TOO_MANY)) for each in requests]
            requests = []
        if requests:
            self._in_flight += weight
            self._spawn(requests, broken, batch, functools.partial(self._ended, weight))
        elif broken and self._refusing + len(broken) <= MAX_IN_FLIGHT:
            self._refusing += len(broken)
            self._spawn([], broken, batch, functools.partial(self._refused, len(broken)))
        elif broken:  # Here, so that nothing more is read until the client takes it.
            await self._write(_together(broken, batch))

    def _spawn(
        self,
        requests: list[Message],
        broken: list[bytes],
        batch: bool,
        ended: "Callable[[asyncio.Task[None]], None]",
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(requests, broken, batch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(ended)

    async def _has_room(self, weight: int) -> bool:
        """Wait until there is room, but not for long: what runs may wait for an answer that comes later."""
        if self._is_full(weight) and not self._stuck:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ROOM_SECONDS):
                    while self._is_full(weight):
                        self._freed.clear()
                        await self._freed.wait()
            self._stuck = self._is_full(weight)
        return not self._is_full(weight)

    def _is_full(self, weight: int) -> bool:
        return self._in_flight > 0 and self._in_flight + weight > MAX_IN_FLIGHT

    def _ended(self, weight: int, task: "asyncio.Task[None]") -> None:
        self._in_flight -= weight
        self._stuck = False
        self._freed.set()

    def _refused(self, count: int, task: "asyncio.Task[None]") -> None:
        self._refusing -= count

    async def _notified(self, message: Message) -> None:
        refused = await self._session.take(message, None)
        if refused is None and message.method == "notifications/initialized" and self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _answer(self, requests: list[Message], responses: list[bytes], batch: bool) -> None:
        """Answer one request; or those of a batch, whose responses go out together."""
        with contextlib.suppress(asyncio.CancelledError, OSError):
            if requests:
                await self._outbox.room()
            answers = [self._session.answer(request, None, self) for request in requests]
            if answers and not batch:
                responses.append(await answers[0])
            elif answers:
                ended = await asyncio.gather(*answers, return_exceptions=True)
                responses += [response for response in ended if isinstance(response, bytes)]
            if responses := [response for response in responses if response]:  # Some are not to be sent.
                together = _together(responses, batch)
                del responses
                sending = self._outbox.send(
                    together,
                    len(together),
                    functools.partial(_or_refused, [each.id for each in requests], batch),
                )
                del together
                await sending

    async def _tell(self) -> None:
        """Send notifications of changes."""
        with contextlib.suppress(OSError, SessionsFull):
            async for message in self._session.changes(self._session.local):
                await self._write(message)

    async def send(self, message: bytes) -> None:
        """Send a request or a notification."""
        await self._write(message)

    def fail(self, error: StatusError) -> None:
        """There is no status: the response says it."""

    def hang_up(self) -> None:
        """There is only one connection, and it stays."""

    async def close(self, grace: float) -> None:
        """Let running requests finish within `grace` seconds, then cancel them; no new one is taken."""
        self._closing = True
        if self._telling is not None:
            self._telling.cancel()
        if self._running:
            _, late = await asyncio.wait(set(self._running), timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._session.end()


async def _or_refused(ids: list[RequestId | None], batch: bool, response: bytes | None) -> bytes:
    """A response, or an error for each request if it was given up."""
    if response is not None:
        return response
    return _together([jsonrpc.error_response(each, InternalError(TOO_MUCH)) for each in ids], batch)


def _together(responses: list[bytes], batch: bool) -> bytes:
    return b"[" + b",".join(responses) + b"]" if batch else responses[0]
