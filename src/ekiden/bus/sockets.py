"""A bus between the processes of one machine, over sockets in a private folder.

A message is in the queues of all listeners when `publish` returns, so it arrives even if its sender is killed
then. For a listener whose queue is full, messages wait here; beyond a limit it is told only that it has
missed some, and so it is if its sender is killed while they wait.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from ekiden.bus.datagrams import MOST_BYTES, Datagrams, Sent
from ekiden.bus.listeners import Listeners
from ekiden.bus.port import Hear

__all__ = ["SocketBus"]

_MISSED: Final = b"?"
"""Stands for messages that were not sent. An empty one would end the thread that receives."""
_MOST_WAITING: Final = 1000
"""Messages that wait for one listener."""
_FIRST_DELAY: Final = 0.002
_LONGEST_DELAY: Final = 0.5
"""Seconds until a full queue is tried again: a process that is busy reads soon, one that is stopped does
not."""
_GOODBYE_SECONDS: Final = 1.0


class SocketBus:
    """Implements `ekiden.bus.port.Bus`."""

    def __init__(self, folder: Path) -> None:
        warning = "The processes of this server do not hear of each other's changes"
        self._sockets = Datagrams(folder, warning=warning)
        self._listeners: Listeners[bytes | None] = Listeners()
        self._waiting: dict[str, deque[bytes]] = {}
        self._sending: asyncio.Task[None] | None = None

    def publish(self, message: bytes) -> None:
        """Send a message to all other processes."""
        if len(message) > MOST_BYTES:
            message = _MISSED
        for name in self._sockets.others():
            if (waiting := self._waiting.get(name)) is not None:
                _queue(waiting, message)
            elif self._sockets.send(name, message) is Sent.FULL:
                self._sockets.mark_late(name)
                self._waiting[name] = deque([message])
        if self._waiting and (self._sending is None or self._sending.done()):
            self._sending = asyncio.get_running_loop().create_task(self._send_waiting())

    async def _send_waiting(self) -> None:
        delay = _FIRST_DELAY
        while self._waiting:
            await asyncio.sleep(delay)
            delay = _FIRST_DELAY if self._send_some() else min(2 * delay, _LONGEST_DELAY)

    def _send_some(self) -> bool:
        """Send what the queues have room for; whether that was anything."""
        moved = False
        for name, waiting in tuple(self._waiting.items()):
            sent = Sent.YES
            while waiting and (sent := self._sockets.send(name, waiting[0])) is Sent.YES:
                waiting.popleft()
                moved = True
            if not waiting or sent is Sent.GONE:
                del self._waiting[name]
                self._sockets.unmark_late(name)
            else:
                self._sockets.mark_late(name)
        return moved

    async def listen(self, hear: Hear) -> Callable[[], None]:
        """Call `hear` for all that others publish from now on."""
        remove = self._listeners.add(hear)
        listeners = self._listeners  # Not `self`: the thread must not keep it alive.
        self._sockets.listen(partial(_receive, listeners), lambda: listeners.tell(None))

        def end() -> None:
            remove()
            if not self._listeners:
                self._sockets.stop_listening()

        return end

    async def close(self) -> None:
        """Send what waits to be sent, for a moment, and give the sockets back."""
        if self._sending is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await self._sending
        self._waiting.clear()
        self._sockets.close()


def _queue(waiting: deque[bytes], message: bytes) -> None:
    if len(waiting) >= _MOST_WAITING:
        waiting.clear()
        waiting.append(_MISSED)
    waiting.append(message)


def _receive(listeners: Listeners[bytes | None], message: bytes) -> None:
    listeners.tell(None if message == _MISSED else message)
