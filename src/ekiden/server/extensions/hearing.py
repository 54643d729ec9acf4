"""Notifications of clients that belong to an extension: each is taken in a task of its own."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from ekiden.errors import ProtocolError
from ekiden.server.registration.extensions import Extensions
from ekiden.wire.modern import Request

__all__ = ["Hearing"]

_log = logging.getLogger(__name__)

_MOST: Final = 1000
"""Notifications that are being taken at once. A client gets no answer to one, so more of them are dropped."""


class Hearing:
    """Takes notifications, until the server stops."""

    def __init__(self, extensions: Extensions) -> None:
        self._extensions = extensions
        self._tasks: set[asyncio.Task[None]] = set()

    def hear(self, request: Request) -> None:
        """Take a notification, if an extension has it."""
        hear = self._extensions.hearer(request.method)
        if hear is None:
            return
        if len(self._tasks) >= _MOST:
            _log.warning("%s is dropped: %d notifications are being taken", request.method, _MOST)
            return
        task = asyncio.get_running_loop().create_task(self._taken(hear(request), request.method))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _taken(self, taking: Awaitable[None], method: str) -> None:
        try:
            await taking
        except ProtocolError as error:
            _log.warning("%s was not understood: %s", method, error)
        except Exception:
            _log.exception("%s failed", method)

    async def stop(self) -> None:
        """Cancel what is still being taken."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
