"""Notifications of changes as an async iterator: by `subscriptions/listen`, or as 2025 sends them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final

from ekiden.client.connection import ServerConnection
from ekiden.client.sessions.session import ClientRequest, Hooks
from ekiden.errors import EkidenError, ServerError, TransportError
from ekiden.wire.json import JsonObject

__all__ = ["changes"]

_log = logging.getLogger(__name__)

_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_METHODS: Final = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
_UPDATED: Final = "notifications/resources/updated"
_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0
"""Seconds before a lost subscription is opened again: doubled with every attempt."""
_LAST_MESSAGE_SECONDS: Final = 2.0
"""How long to wait for the server when a subscription is ended."""
_PENDING: Final = 1000
"""Notifications that may wait to be read. Beyond it the oldest is dropped: it only says what changed."""


async def changes(
    connection: ServerConnection,
    wanted: Mapping[str, bool],
    uris: tuple[str, ...],
    *,
    reconnect: bool,
    is_lenient: bool = False,
) -> AsyncGenerator[JsonObject, None]:
    """Notifications of the wanted kinds, until the server ends the subscription.

    `is_lenient`: a URI that a server of 2025 refuses is left out.
    """
    queue: asyncio.Queue[JsonObject] = asyncio.Queue(_PENDING)
    methods = {_METHODS[name] for name, want in wanted.items() if want} | ({_UPDATED} if uris else set[str]())

    def receive(message: JsonObject) -> None:
        if message.get("method") in methods:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(message)

    if connection.session.era == "legacy":
        stream = _legacy(connection, uris, receive, queue, is_lenient)
    else:
        notifications: JsonObject = {name: True for name, want in wanted.items() if want}
        if uris:
            notifications["resourceSubscriptions"] = list(uris)
        stream = _modern(_Subscription(connection, notifications, receive, reconnect=reconnect), queue)
    async with contextlib.aclosing(stream):
        async for change in stream:
            yield change


class _Subscription:
    """A `subscriptions/listen` request; with `reconnect`, it is sent again when it is lost."""

    def __init__(
        self,
        connection: ServerConnection,
        notifications: JsonObject,
        receive: Callable[[JsonObject], None],
        *,
        reconnect: bool,
    ) -> None:
        self._connection = connection
        self._params = {"notifications": notifications}
        self._receive = receive
        self._reconnect = reconnect
        self._delay = _FIRST_DELAY

    async def hold(self) -> None:
        """Returns when the server ends the subscription."""
        hooks = Hooks(notification=self._notified)
        while True:
            try:
                await self._connection.request(
                    ClientRequest("subscriptions/listen", self._params, hooks=hooks)
                )
                return
            except TransportError as error:
                if not self._reconnect:
                    raise
                _log.debug("The subscription was lost (%s); again in %.1f s", error, self._delay)
            await asyncio.sleep(self._delay)
            self._delay = min(self._delay * 2, _LONGEST_DELAY)

    def _notified(self, message: JsonObject) -> None:
        self._delay = _FIRST_DELAY  # The server is reachable again.
        if message.get("method") != _ACKNOWLEDGED:
            self._connection.notified(message)
            self._receive(message)


async def _modern(
    subscription: _Subscription, queue: "asyncio.Queue[JsonObject]"
) -> AsyncGenerator[JsonObject, None]:
    holding = asyncio.get_running_loop().create_task(subscription.hold())
    try:
        async for change in _drain(queue, holding):
            yield change
    finally:
        holding.cancel()
        with contextlib.suppress(asyncio.CancelledError, EkidenError):
            await holding


async def _legacy(
    connection: ServerConnection,
    uris: tuple[str, ...],
    receive: Callable[[JsonObject], None],
    queue: "asyncio.Queue[JsonObject]",
    is_lenient: bool,
) -> AsyncGenerator[JsonObject, None]:
    connection.watchers.add(receive)
    try:
        for uri in uris:
            try:
                await connection.request(ClientRequest("resources/subscribe", {"uri": uri}))
            except ServerError as error:
                if not is_lenient:
                    raise
                _log.debug("A subscription was refused: %s", error)
        while True:
            yield await queue.get()
    finally:
        connection.watchers.discard(receive)
        with contextlib.suppress(EkidenError, TimeoutError):
            async with asyncio.timeout(_LAST_MESSAGE_SECONDS):
                for uri in uris:
                    await connection.request(ClientRequest("resources/unsubscribe", {"uri": uri}))


async def _drain(
    queue: "asyncio.Queue[JsonObject]", holding: "asyncio.Task[None]"
) -> AsyncGenerator[JsonObject, None]:
    """What arrives while `holding` runs, and what still waits when it has ended."""
    while True:
        getting = asyncio.ensure_future(queue.get())
        try:
            await asyncio.wait({getting, holding}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_here = not getting.cancel()  # Also if the caller is cancelled: no task may stay behind.
        if is_here:
            yield getting.result()
            continue
        while not queue.empty():
            yield queue.get_nowait()
        holding.result()
        return
