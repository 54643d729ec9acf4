"""A shared channel, client side: stdio and memory. Messages are told apart by their ids."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from ekiden.errors import ProtocolError, TooMuch, TransportError
from ekiden.transports.client.arriving import Arriving
from ekiden.transports.client.complaints import Complaints
from ekiden.transports.client.decoding import SMALL, Decoding, Held
from ekiden.transports.client.link import Listener, Outgoing
from ekiden.wire import jsonrpc
from ekiden.wire.extensions.names import CORE_METHODS
from ekiden.wire.json import is_object
from ekiden.wire.jsonrpc import RequestId
from ekiden.wire.meta import SUBSCRIPTION_ID
from ekiden.wire.printable import printable

__all__ = ["ChannelLink"]

_log = logging.getLogger(__name__)

_LOG: Final = "notifications/message"

_NOT_CANCELLED: Final = frozenset({"initialize", "server/discover", "ping"})
"""What a connection begins with. `initialize` must not be cancelled, and the others change nothing."""


_MOST_PONGS: Final = 100
"""Pings that may wait for their answers: a server that does not read might send any number."""


class _Waiting:
    def __init__(self, listener: Listener, held: Held | None) -> None:
        self.listener = listener
        self.held = held
        self.response: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()


def _taken(response: asyncio.Future[dict[str, Any]]) -> BaseException | None:
    """The exception of a response that nobody waits for: untaken, asyncio would log it as lost."""
    return response.exception() if response.done() and not response.cancelled() else None


class ChannelLink:
    """Implements `ekiden.transports.client.link.Link` over a way to write one message and hear all others."""

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        *,
        arriving: Arriving | None = None,
        most_values: int | None = None,
    ) -> None:
        self._write = write
        self._decoding = Decoding((arriving or Arriving()).server, most_values)
        self._waiting: dict[RequestId, _Waiting] = {}
        self.listener: Listener | None = None
        """Takes what does not belong to a request."""
        self._lost: TransportError | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._garbage = 0
        """Lines that are not messages."""
        self._complain = Complaints(_log)
        self._closing = False
        self.asked_in_vain = asyncio.Event()
        """Set when the server asks something after the link was closed: it waits for an answer in vain."""

    async def request(self, outgoing: Outgoing, listener: Listener) -> dict[str, Any]:
        """Send a request and wait for its response; if the wait is cancelled, the server is told."""
        if self._lost is not None:
            raise self._lost
        waiting = self._waiting[outgoing.id] = _Waiting(listener, outgoing.held)
        try:
            await self._write(outgoing.body)
            return await waiting.response
        except asyncio.CancelledError:
            _taken(waiting.response)
            if outgoing.method not in _NOT_CANCELLED:
                await self._cancel(outgoing.id)
            raise
        except TransportError as error:
            # If the channel was lost while the request was written, that says more.
            raise _taken(waiting.response) or error from None
        finally:
            del self._waiting[outgoing.id]

    async def _cancel(self, request_id: RequestId) -> None:
        message = jsonrpc.notification("notifications/cancelled", {"requestId": request_id})
        try:
            async with asyncio.timeout(1.0):
                await self._write(message)
        except (TransportError, TimeoutError):
            _log.debug("The server could not be told that request %r is cancelled", request_id)

    async def send(self, message: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification or a response."""
        await self._write(message)

    async def hear(self, data: bytes) -> bool:
        """Take one message of the server, a large one when its turn has come; whether it was one."""
        if len(data) <= SMALL:
            return self.received(data)
        try:
            decoded = await self._decoding.in_turn(data)
        except (ProtocolError, TooMuch) as error:
            return self._not_taken(data, error)
        message = decoded.message
        waiting = None if "method" in message else self._waiting.get(message.get("id", ""))
        self._take(decoded.pass_to(None if waiting is None or waiting.response.done() else waiting.held))
        return True

    def received(self, data: bytes) -> bool:
        """Take one message of the server, however large; whether it was one."""
        try:
            message = self._decoding.now(data)
        except (ProtocolError, TooMuch) as error:
            return self._not_taken(data, error)
        self._take(message)
        return True

    def _not_taken(self, data: bytes, error: ProtocolError | TooMuch) -> bool:
        """A line is not a message, or one for which there is no room: then whoever waits for it is told."""
        if isinstance(error, TooMuch):
            answered = jsonrpc.answered_by(data)
            waiting = None if answered is None else self._waiting.get(answered)
            if waiting is None:
                self._complain("A message of the server was dropped: %s", error)
            elif not waiting.response.done():
                waiting.response.set_exception(error)
            return True
        self._garbage += 1
        if self._garbage == 1:
            _log.warning("The server sent a line that is not a message: %s", error)
        return False

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self._response(message)
        elif message.get("id") is None:
            self._notification(message)
        else:
            self._request(message)

    def _request(self, message: dict[str, Any]) -> None:
        if self._closing:
            self.asked_in_vain.set()
        elif self.listener is not None:
            self._answer(self.listener.on_request(message))
        elif message["method"] == "ping":
            if len(self._answering) < _MOST_PONGS:
                self._answer(self._pong(message["id"]))
        else:
            # Only servers before 2026 send requests, and this one is newer: nothing it says can be trusted.
            self._fail(
                TransportError(f"The server must not send requests, but sent {printable(message['method'])}")
            )

    def _answer(self, answering: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(answering)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _pong(self, request_id: RequestId) -> None:
        with contextlib.suppress(TransportError):
            await self._write(jsonrpc.result_response(request_id, b"{}"))

    def _notification(self, message: dict[str, Any]) -> None:
        waiting = self._waiting_for(message)
        listener = self.listener if waiting is None else waiting.listener
        if listener is None:
            _log.debug("Nobody listens for %s", message["method"])
            return
        try:
            listener.on_notification(message)
        except Exception as error:
            # A callback of the user failed: the call raises that, and the channel goes on.
            if waiting is None:
                _log.exception("A callback failed to take %s", printable(message["method"]))
            elif not waiting.response.done():
                waiting.response.set_exception(error)

    def _response(self, message: dict[str, Any]) -> None:
        request_id = message.get("id")
        waiting = None if request_id is None else self._waiting.get(request_id)
        if waiting is not None and not waiting.response.done():
            waiting.response.set_result(message)
        elif request_id is None and "error" in message:
            self._complain("The server could not read a message: %s", message["error"])

    def _waiting_for(self, message: dict[str, Any]) -> _Waiting | None:
        """Whose notification it is: that of the subscription or the progress token that it names."""
        params: dict[str, Any] = message.get("params") or {}
        meta = params.get("_meta")
        subscription = meta.get(SUBSCRIPTION_ID) if is_object(meta) else None
        named: Any = subscription if subscription is not None else params.get("progressToken")
        if isinstance(named, int | str) and named in self._waiting:
            return self._waiting[named]
        nameless = message["method"] == _LOG or message["method"] not in CORE_METHODS
        if nameless and self._waiting and self.listener is None:
            # Log messages, and those of extensions, do not name their request: any passes them on.
            return next(iter(self._waiting.values()))
        return None

    @property
    def is_lost(self) -> bool:
        """Whether the channel is gone."""
        return self._lost is not None

    def lost(self, error: TransportError) -> None:
        """The channel is gone: all requests that wait fail with `error`."""
        self._lost = error
        self._fail(error)

    def _fail(self, error: TransportError) -> None:
        for waiting in self._waiting.values():
            if not waiting.response.done():
                waiting.response.set_exception(error)

    async def close(self, *, hurry: bool = False) -> None:
        """Stop answering."""
        self._closing = True
        if self._garbage > 1:
            _log.warning("The server sent %d lines that are not messages", self._garbage)
        for task in self._answering:
            task.cancel()
