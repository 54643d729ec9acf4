"""What is held of responses for clients of 2025: how many bytes all of them take together."""

from collections.abc import Callable

from ekiden.transports.server.large.held import Held, HeldBytes

__all__ = ["Held", "HeldBytes", "Hold", "Pools"]

Hold = Callable[[Held, int], None]
"""Counts the bytes that are held of something."""


class Pools:
    """Two limits: one for what clients may come back for, and one for what they are reading.

    They are apart because a client that does not read must not cost others what is kept for them.
    """

    def __init__(self, kept: int, unread: int) -> None:
        self._kept = HeldBytes(kept)
        self._unread = HeldBytes(unread)

    def hold(self, client: str, held: Held, size: int) -> None:
        """So many bytes are held of this now."""
        here, before = (self._unread, self._kept) if held.is_read else (self._kept, self._unread)
        before.hold(client, held, 0)
        here.hold(client, held, size)
