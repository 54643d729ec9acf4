"""Changes of a server, as an async iterator: `subscriptions/listen`, or what 2025 had for it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final

from ekiden.client.connection import ServerConnection
from ekiden.client.sessions.session import ClientRequest, Hooks
from ekiden.errors import EkidenError, TransportError
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
"""Seconds before a lost subscription is opened again: soon at first, then rarely."""
_GOODBYE_SECONDS: Final = 2.0
"""How long the end of a subscription may take."""
_PENDING: Final = 1000
"""Changes that may wait for their reader. Beyond it the oldest go: all they say is that something changed."""


async def changes(
    connection: ServerConnection, wanted: Mapping[str, bool], uris: tuple[str, ...], *, reconnect: bool
) -> AsyncGenerator[JsonObject, None]:
    """Notifications of the wanted kinds, until the server ends the subscription."""
    queue: asyncio.Queue[JsonObject] = asyncio.Queue(_PENDING)
    methods = {_METHODS[name] for name, want in wanted.items() if want} | ({_UPDATED} if uris else set[str]())

    def hear(message: JsonObject) -> None:
        if message.get("method") in methods:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(message)

    if connection.session.era == "legacy":
        stream = _legacy(connection, uris, hear, queue)
    else:
        stream = _modern(connection, wanted, uris, hear, queue, reconnect=reconnect)
    async with contextlib.aclosing(stream):
        async for change in stream:
            yield change


async def _modern(
    connection: ServerConnection,
    wanted: Mapping[str, bool],
    uris: tuple[str, ...],
    hear: Callable[[JsonObject], None],
    queue: "asyncio.Queue[JsonObject]",
    *,
    reconnect: bool,
) -> AsyncGenerator[JsonObject, None]:
    notifications: JsonObject = {name: True for name, want in wanted.items() if want}
    if uris:
        notifications["resourceSubscriptions"] = list(uris)

    delay = _FIRST_DELAY

    def both(message: JsonObject) -> None:
        nonlocal delay
        delay = _FIRST_DELAY  # It works again.
        if message.get("method") != _ACKNOWLEDGED:
            connection.notified(message)
            hear(message)

    async def hold() -> None:
        nonlocal delay
        params = {"notifications": notifications}
        while True:
            try:
                await connection.request(
                    ClientRequest("subscriptions/listen", params, hooks=Hooks(notification=both))
                )
                return  # The server ended it gracefully.
            except TransportError as error:
                if not reconnect:
                    raise
                _log.debug("The subscription was lost (%s); it is opened again in %.1f s", error, delay)
                await asyncio.sleep(delay)
                delay = min(delay * 2, _LONGEST_DELAY)

    holding = asyncio.get_running_loop().create_task(hold())
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
    hear: Callable[[JsonObject], None],
    queue: "asyncio.Queue[JsonObject]",
) -> AsyncGenerator[JsonObject, None]:
    connection.watchers.add(hear)
    try:
        for uri in uris:
            await connection.request(ClientRequest("resources/subscribe", {"uri": uri}))
        while True:
            yield await queue.get()
    finally:
        connection.watchers.discard(hear)
        with contextlib.suppress(EkidenError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                for uri in uris:
                    await connection.request(ClientRequest("resources/unsubscribe", {"uri": uri}))


async def _drain(
    queue: "asyncio.Queue[JsonObject]", holding: "asyncio.Task[None]"
) -> AsyncGenerator[JsonObject, None]:
    """What arrives while `holding` runs, and what is left when it has ended."""
    while True:
        getting = asyncio.ensure_future(queue.get())
        try:
            await asyncio.wait({getting, holding}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_here = not getting.cancel()  # A caller that is cancelled leaves nobody waiting.
        if is_here:
            yield getting.result()
            continue
        while not queue.empty():
            yield queue.get_nowait()
        holding.result()
        return
