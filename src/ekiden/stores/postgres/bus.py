"""A bus between all processes that use one database: LISTEN and NOTIFY.

Messages that are published while a statement runs go out with the next one. While the database is away they
wait here, up to a limit; beyond it listeners are told only that they have missed some.

Each process numbers its messages. Without the number Postgres would fold equal messages of one transaction
into the first of them. The number also shows a listener a message that comes twice, because its sender did
not know whether it had been sent, and a gap.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from typing import Final

from ekiden.bus.listeners import Listeners
from ekiden.bus.port import Hear
from ekiden.errors import StoreUnavailable, UsageError
from ekiden.stores.postgres.database import PostgresDatabase
from ekiden.stores.postgres.listening import MOST_BYTES, Listening

__all__ = ["PostgresBus"]

_log = logging.getLogger(__name__)

_MISSED: Final = "?"
_MOST_WAITING: Final = 1000
_MOST_HEARD: Final = 1000
"""Processes whose numbers are remembered. Nobody tells which of them have ended, so there is a bound."""
_HEAD_BYTES: Final = 40
"""What stands before a message, at most."""
_AT_ONCE: Final = 100
_AGAIN_SECONDS: Final = 1.0


class PostgresBus:
    """Implements `ekiden.bus.port.Bus`."""

    def __init__(self, database: PostgresDatabase, channel: str = "ekiden_bus") -> None:
        self._database = database
        self._channel = channel
        self._origin = secrets.token_hex(6)
        """Begins every message of this process, which so ignores its own."""
        self._listeners: Listeners[bytes | None] = Listeners()
        self._listening = Listening(database, channel, self._receive, self._missed)
        self._last = 0
        """The number of the last message of this process."""
        self._heard: dict[str, int] = {}
        """The number of the last message of each other process."""
        self._waiting: list[str] = []
        self._sending: asyncio.Task[None] | None = None

    def publish(self, message: bytes) -> None:
        """Send a message to all other processes."""
        if len(message) > MOST_BYTES - _HEAD_BYTES:
            message = _MISSED.encode()
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting = [self._numbered(_MISSED)]
        self._waiting.append(self._numbered(message.decode()))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send_waiting())

    def _numbered(self, message: str) -> str:
        self._last += 1
        return f"{self._origin} {self._last} {message}"

    async def _send_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            try:
                await self._send(batch)
            except StoreUnavailable as error:
                _log.debug("%d messages to other processes wait: %s", len(batch), error)
                self._waiting[:0] = batch
                await asyncio.sleep(_AGAIN_SECONDS)
            except UsageError as error:
                _log.error("Other processes are not told of changes: %s", error)
                return

    async def _send(self, batch: list[str]) -> None:
        async with self._database.in_line() as connection:
            await connection.execute(
                "SELECT pg_notify(%s, message) FROM unnest(%s::text[]) AS message", (self._channel, batch)
            )

    async def listen(self, hear: Hear) -> Callable[[], None]:
        """Call `hear` for all that others publish from now on."""
        remove = self._listeners.add(hear)
        self._listening.start()
        await self._listening.begun()

        def end() -> None:
            remove()
            if not self._listeners:
                self._listening.end()

        return end

    def _receive(self, payload: str) -> None:
        origin, _, rest = payload.partition(" ")
        number, _, message = rest.partition(" ")
        if origin == self._origin:
            return
        if not number.isdecimal():
            self._listeners.tell(None)  # Of another version.
            return
        before, this = self._heard.pop(origin, None), int(number)
        self._heard[origin] = this if before is None else max(this, before)
        if len(self._heard) > _MOST_HEARD:
            del self._heard[next(iter(self._heard))]
        if before is not None and this <= before:
            return
        if before is not None and this > before + 1:
            self._listeners.tell(None)
        self._listeners.tell(None if message == _MISSED else message.encode())

    def _missed(self) -> None:
        self._heard.clear()
        self._listeners.tell(None)

    async def close(self) -> None:
        """Send what waits to be sent, if the database is there, and stop listening."""
        if self._sending is not None and not self._sending.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._database.wait_seconds):
                    await self._sending
        await self._listening.close()
