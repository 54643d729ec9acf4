"""Cross-process wake-ups for one SQLite file, over Unix datagram sockets next to it.

A process that changed a task sends a signal to every other one that listens. Signals are hints: if one is
lost, a worker finds the change at its next look. Where there are no such sockets, there are only those looks.
"""

import contextlib
from collections.abc import Callable
from typing import Final

import msgspec

from ekiden.bus.datagrams import Datagrams, folder_beside
from ekiden.tasks.store import Signal

__all__ = ["WakeSocket"]

_KNOWN_SECONDS: Final = 0.01
"""Signals may miss a process that has begun to listen within this time."""
_WARNING: Final = "Processes that share the store notice changes late"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Signal).decode


class WakeSocket:
    """The sockets of this process: `tell` sends signals, and `listen` receives them."""

    def __init__(self, path: str) -> None:
        folder = folder_beside(path, "wake")
        self._sockets = Datagrams(folder, warning=_WARNING, known_seconds=_KNOWN_SECONDS)

    def listen(self, on_signal: Callable[[Signal], None]) -> None:
        """Call a function, in a thread of its own, for every signal of another process."""

        def hear(message: bytes) -> None:
            with contextlib.suppress(msgspec.MsgspecError):
                on_signal(_decode(message))

        self._sockets.listen(hear)

    def stop_listening(self) -> None:
        """Remove the socket of this process. Signals are not received any more."""
        self._sockets.stop_listening()

    def tell(self, signal: Signal) -> None:
        """Send a signal to every other process that listens; one whose queue is full finds it by looking."""
        for name in self._sockets.others():
            self._sockets.send(name, _encode(signal))

    def close(self) -> None:
        """Close the sockets."""
        self._sockets.close()
