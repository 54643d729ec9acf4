"""Places, or bytes, of which a process has only so many for all of its clients.

One client may take all of them. So that it keeps nobody else out, there are a quarter more, which are only
for clients that hold almost none: less than an eighth of that quarter.
"""

from typing import Final

__all__ = ["Shares"]

_MORE: Final = 4
_EACH: Final = 8


class Shares:
    """Counts what each client holds. Clients that cannot be told apart are one client."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.more = most // _MORE
        """How many there are beyond `most`, for those who hold almost none."""
        self._each = self.more // _EACH
        self._total = 0
        self._of: dict[str, int] = {}

    def take(self, client: str, size: int = 1) -> bool:
        """Take so many; False if there are not so many left for this client."""
        if not self.has(client, size):
            return False
        self._total += size
        self._of[client] = self._of.get(client, 0) + size
        return True

    def has(self, client: str, size: int = 1) -> bool:
        """Whether there are so many left for this client."""
        total = self._total + size
        return (
            not size
            or total <= self._most
            or (total <= self._most + self.more and self.is_modest(client, size))
        )

    def is_modest(self, client: str, size: int = 1) -> bool:
        """Whether a client holds almost none, also with so many more."""
        return self._of.get(client, 0) + size <= self._each

    def of(self, client: str) -> int:
        """What a client holds."""
        return self._of.get(client, 0)

    def add(self, client: str, size: int = 1) -> None:
        """Count so many, whether or not there are any left."""
        self._total += size
        self._of[client] = self._of.get(client, 0) + size

    def give_back(self, client: str, size: int = 1) -> None:
        """They are not held any more."""
        held = self._of.pop(client, 0)
        self._total -= min(size, held)
        if held > size:
            self._of[client] = held - size
