"""Progress and log messages of an upstream, sent on to the client of the call in their order."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ekiden.server.context import Context
from ekiden.transports.client.decoding import Held
from ekiden.transports.turns import weight_of
from ekiden.wire.json import JsonObject, encode
from ekiden.wire.jsonrpc import MOST_VALUES
from ekiden.wire.meta import LOG_LEVELS

__all__ = ["Relay"]

_MOST_WAITING: Final = 1000
_MOST_BYTES: Final = 1024 * 1024
"""Messages that may wait to be sent, and what they take in memory. Beyond it the oldest are dropped: the
client does not read."""


class Relay:
    """Sends on what comes besides the result of one call."""

    def __init__(self, ctx: Context[Any]) -> None:
        self._ctx = ctx
        self.held = Held()
        """Counts the result while this sends what comes before it."""
        self._waiting: deque[tuple[int, Callable[[], Coroutine[Any, Any, None]]]] = deque()
        self._bytes = 0
        """The size of those that wait."""
        self._sending: asyncio.Task[None] | None = None

    def progress(self, params: JsonObject) -> None:
        """Send on progress. What is malformed is dropped."""
        done, total, message = params.get("progress"), params.get("total"), params.get("message")
        if isinstance(done, int | float):
            total = total if isinstance(total, int | float) else None
            message = message if isinstance(message, str) else None
            self._send(params, lambda: self._ctx.progress(done, total, message))

    def log(self, params: JsonObject) -> None:
        """Send on a log message, if the client wants those of its level."""
        level, logger = params.get("level"), params.get("logger")
        if isinstance(level, str) and level in LOG_LEVELS and "data" in params:
            known: Any = level
            logger = logger if isinstance(logger, str) else None
            self._send(params, lambda: self._ctx.log(known, params["data"], logger=logger))

    def _send(self, params: JsonObject, message: Callable[[], Coroutine[Any, Any, None]]) -> None:
        size = weight_of(encode(params), MOST_VALUES)
        if size > _MOST_BYTES:
            return  # It alone is more than may wait.
        while self._waiting and (len(self._waiting) >= _MOST_WAITING or self._bytes + size > _MOST_BYTES):
            self._next()
        self._waiting.append((size, message))
        self._bytes += size
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    def _next(self) -> Callable[[], Coroutine[Any, Any, None]]:
        size, message = self._waiting.popleft()
        self._bytes -= size
        return message

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._next()()
        finally:
            self._sending = None

    async def flush(self) -> None:
        """Wait until everything has been sent: the result comes last."""
        if self._sending is not None:
            await asyncio.wait({self._sending})

    def stop(self) -> None:
        """Send nothing more."""
        self._waiting.clear()
        self.held.drop()
        if self._sending is not None:
            self._sending.cancel()
