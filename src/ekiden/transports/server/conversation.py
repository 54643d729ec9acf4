"""Many requests over one ordered channel: what stdio and memory have in common.

There is no stream per request, so messages are told apart by their ids, and a client cancels
with `notifications/cancelled` (basic/patterns: Cancellation).
"""

import asyncio
import functools
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from ekiden.errors import EnvelopeError, InternalError, InvalidRequest, ProtocolError
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.transports.server.large.outbox import Outbox
from ekiden.transports.server.large.results import TOO_MUCH
from ekiden.transports.server.large.sizes import size_of
from ekiden.transports.server.legacy.channel_session import (
    MAX_IN_FLIGHT,
    SHUTTING_DOWN,
    ChannelSession,
    weight_of_line,
)
from ekiden.transports.server.port import Endpoint
from ekiden.transports.server.reply import LARGE
from ekiden.wire import jsonrpc
from ekiden.wire.handshake import is_modern
from ekiden.wire.jsonrpc import Message, RequestId
from ekiden.wire.meta import SUBSCRIPTION_ID
from ekiden.wire.modern import Request, accept
from ekiden.wire.principal import Principal

__all__ = ["Conversation"]

_log = logging.getLogger(__name__)


class Conversation:
    """Answers the messages of one channel; `send` carries one message back."""

    def __init__(
        self,
        endpoint: Endpoint,
        send: Callable[[bytes], Awaitable[None]],
        principal: Principal | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._principal = principal or endpoint.local
        self._send = send
        self._outbox = Outbox(send)
        self._running: dict[RequestId, tuple[asyncio.Task[None], _Stream]] = {}
        """The requests that have no answer yet, by id."""
        self._tasks: dict[asyncio.Task[None], _Stream] = {}
        """The same, and those whose answers are on their way."""
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._closing = False
        self._id = secrets.token_urlsafe(16)
        """What middleware knows this connection by."""
        self._session: ChannelSession | None = None
        """The session that takes all further messages, if the client began with `initialize` as in 2025."""

    async def receive(self, data: bytes) -> None:
        """Take one message; its answer goes out when it is ready."""
        if self._session is not None:
            await self._session.receive(data)
            return
        message: Message | None = None
        try:
            message = jsonrpc.parse(data)
            if message.id is None:
                if await self._is_admitted(message):
                    self._notified(message)
                return
            if self._closing:
                raise InternalError(SHUTTING_DOWN)
            if message.method == "initialize" and not is_modern(message.params):
                self._session = await ChannelSession.begin(
                    self._endpoint.sessions, message, self._send, self._principal
                )
                return
            if message.id in self._running:
                raise InvalidRequest(f"Invalid request: id {message.id!r} is in use by a running request")
            request = accept(message, None, self._endpoint.methods)
            request.session, request.principal = self._id, self._principal
        except ProtocolError as error:
            if isinstance(error, EnvelopeError) and error.notification:
                return
            broken = error.request_id if isinstance(error, EnvelopeError) else None
            request_id = message.id if message is not None else broken
            await self._send(self._endpoint.dialect.error(request_id, error))
            return
        weight = weight_of_line(data)
        for _ in range(weight):
            await self._room.acquire()  # Reading pauses until there is room.
        stream = _Stream(self._send)
        task = asyncio.get_running_loop().create_task(self._answer(request, stream))
        self._running[request.id] = (task, stream)
        self._tasks[task] = stream
        task.add_done_callback(functools.partial(self._ended, request.id, weight))

    def _ended(self, request_id: RequestId, weight: int, task: asyncio.Task[None]) -> None:
        """Runs also for a request that was cancelled before it began."""
        if self._running.get(request_id, (None,))[0] is task:
            del self._running[request_id]
        del self._tasks[task]
        for _ in range(weight):
            self._room.release()

    async def _answer(self, request: Request, stream: "_Stream") -> None:
        try:
            await self._outbox.room()
            outcome = await self._endpoint.answer(request, stream)
            if not stream.open:
                return  # It was cancelled, and ended all the same: no response is sent.
            # With its answer the id is free again, and late notifications of the handler are dropped.
            stream.open = False
            self._running.pop(request.id, None)
            has_ended = request.method == "subscriptions/listen" and isinstance(outcome, Complete)
            size = size_of(outcome.result) if isinstance(outcome, Complete) else 0
            sending = self._outbox.send(outcome, size, functools.partial(self._spelled, request))
            del outcome
            await sending
            if has_ended:
                # On a shared channel the end of a subscription is announced as well; see decision 1.
                await self._send(jsonrpc.notification("notifications/cancelled", _named(request.id)))
        except asyncio.CancelledError:
            _log.debug("Request %r was cancelled", request.id)
        except OSError as error:
            _log.debug("The answer to request %r could not be sent: %s", request.id, error)

    async def _spelled(self, request: Request, outcome: Outcome | None) -> bytes:
        """The response, when the channel is free for it."""
        if outcome is None:
            outcome = Failed(InternalError(TOO_MUCH))
        large = self._endpoint.large
        if large.busy:
            admitting = large.admit(outcome, self._id)
            del outcome
            outcome = await admitting
        response = outcome.render(self._endpoint.dialect, request.id)
        if len(response) > LARGE:
            large.spelled(len(response))
        return response

    async def _is_admitted(self, message: Message) -> bool:
        if not self._endpoint.is_watched:
            return True
        return await self._endpoint.notified(message, None, self._id) is None

    def _notified(self, message: Message) -> None:
        if message.method == "notifications/cancelled":
            request_id: Any = message.params.get("requestId")
            running = self._running.get(request_id) if type(request_id) in (int, str) else None
            if running is not None:
                _log.debug("Cancelling request %r: %s", request_id, message.params.get("reason"))
                _cancel(*running)

    async def close(self, grace: float) -> None:
        """Let running requests finish within `grace` seconds, then cancel them; no new one is taken.

        Those whose answers are being sent are waited for, too.
        """
        self._closing = True
        if self._session is not None:
            await self._session.close(grace)
        if tasks := dict(self._tasks):
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                _cancel(task, tasks[task])
            await asyncio.gather(*late, return_exceptions=True)


def _named(request_id: RequestId) -> dict[str, Any]:
    return {"_meta": {SUBSCRIPTION_ID: request_id}, "requestId": request_id}


class _Stream:
    """The way back for one request. It ends with the request's answer, or its cancellation."""

    can_notify = True

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self.open = True

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification; on a shared channel its params say what it belongs to."""
        if self.open:
            await self._send(jsonrpc.notification(method, params))
        else:
            await asyncio.sleep(0)  # Without a wait a handler that only notifies could not be cancelled.


def _cancel(task: asyncio.Task[None], stream: _Stream) -> None:
    stream.open = False
    task.cancel()
