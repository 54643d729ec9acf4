"""How much of large request bodies one process holds before they are answered."""

__all__ = ["BodyBudget"]


class BodyBudget:
    """Bytes that all connections share. A body takes of it as it grows, and gives it back at its turn."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, size: int) -> bool:
        """Take some bytes; False if there are not so many left."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """They are not held any more."""
        self._left += size
