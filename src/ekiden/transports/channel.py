"""A shared channel, client side: stdio and memory. Messages are told apart by their ids."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ekiden.errors import ProtocolError, TransportError
from ekiden.transports.link import Listener, Outgoing
from ekiden.wire import jsonrpc
from ekiden.wire.jsonrpc import RequestId
from ekiden.wire.meta import SUBSCRIPTION_ID

__all__ = ["ChannelLink"]

_log = logging.getLogger("ekiden.client")


class _Waiting:
    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.response: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()


class ChannelLink:
    """Implements `ekiden.transports.link.Link` over a way to write one message and hear all others."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._write = write
        self._waiting: dict[RequestId, _Waiting] = {}
        self.listener: Listener | None = None
        """Who hears what belongs to no request."""
        self._lost: TransportError | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def request(self, outgoing: Outgoing, listener: Listener) -> dict[str, Any]:
        """Send a request and wait for its response; if the wait is cancelled, the server is told."""
        if self._lost is not None:
            raise self._lost
        waiting = self._waiting[outgoing.id] = _Waiting(listener)
        try:
            await self._write(outgoing.body)
            return await waiting.response
        except asyncio.CancelledError:
            await self._cancel(outgoing.id)
            raise
        finally:
            del self._waiting[outgoing.id]

    async def _cancel(self, request_id: RequestId) -> None:
        message = jsonrpc.notification("notifications/cancelled", {"requestId": request_id})
        try:
            async with asyncio.timeout(1.0):
                await self._write(message)
        except (TransportError, TimeoutError):
            _log.debug("The server could not be told that request %r is cancelled", request_id)

    async def send(self, message: bytes) -> None:
        """Send a notification or a response."""
        await self._write(message)

    def received(self, data: bytes) -> None:
        """Take one message of the server."""
        try:
            message = jsonrpc.parse_from_server(data)
        except ProtocolError as error:
            _log.warning("The server sent a line that is no message: %s", error)
            return
        if "method" not in message:
            self._response(message)
            return
        listener = self._listener_for(message)
        if listener is None:
            _log.debug("Nobody listens for %s", message["method"])
        elif "id" in message:
            task = asyncio.get_running_loop().create_task(listener.on_request(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        else:
            listener.on_notification(message)

    def _response(self, message: dict[str, Any]) -> None:
        request_id = message.get("id")
        waiting = self._waiting.get(request_id) if isinstance(request_id, int | str) else None
        if waiting is not None and not waiting.response.done():
            waiting.response.set_result(message)
        elif request_id is None and "error" in message:
            _log.warning("The server could not read a message: %s", message["error"])

    def _listener_for(self, message: dict[str, Any]) -> Listener | None:
        """Who a notification belongs to: the subscription or the progress token that it names."""
        params: dict[str, Any] = message.get("params") or {}
        meta: dict[str, Any] = params.get("_meta") or {}
        subscription = meta.get(SUBSCRIPTION_ID)
        named: Any = subscription if subscription is not None else params.get("progressToken")
        if isinstance(named, int | str) and named in self._waiting:
            return self._waiting[named].listener
        if self.listener is None and self._waiting:
            # A log message does not name its request. Any of them passes it on to the same ears.
            return next(iter(self._waiting.values())).listener
        return self.listener

    def lost(self, error: TransportError) -> None:
        """The channel is gone: nobody gets a response any more."""
        self._lost = error
        for waiting in self._waiting.values():
            if not waiting.response.done():
                waiting.response.set_exception(error)

    async def close(self) -> None:
        """Stop answering."""
        for task in self._answering:
            task.cancel()
