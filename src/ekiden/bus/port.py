"""The port of a bus: short messages from one process of a server to all others.

The promises that every bus makes, and that `ekiden.testing.BusContract` checks:

1. What one process publishes reaches every other process that listens, once and in order, as long as both
   live.
2. Where that cannot be held, because a process does not read, or the connection to a database was cut, the
   listener is told that it has missed something. Nothing is lost silently.
3. A process does not hear itself. `publish` never waits.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

__all__ = ["Bus", "Hear"]

Hear: TypeAlias = Callable[[bytes | None], None]
"""Called with each message, in the event loop of the listener; with None if messages were missed."""


class Bus(Protocol):
    """Connects the processes of a server. All methods are called in one event loop at a time."""

    def publish(self, message: bytes) -> None:
        """Send a message to all other processes. It is not empty, and is UTF-8.

        One that is too long for this bus is received as None: as a message that was missed.
        """
        ...

    async def listen(self, hear: Hear) -> Callable[[], None]:
        """Call `hear` for all that others publish from now on; call what is returned to end that."""
        ...

    async def close(self) -> None:
        """Send what waits to be sent, and release what is held. The next use opens it again."""
        ...
