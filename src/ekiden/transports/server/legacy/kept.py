"""What is kept of streams for clients of 2025 that may come back: how many bytes all of them take together.

Above the limit, what is kept of a stream is given up: of the client that has most, the stream first whose
last event is oldest. A stream that a client is reading is not given up.
"""

from typing import Protocol

__all__ = ["KeptBytes"]


class _Kept(Protocol):
    """A stream of which something is kept."""

    @property
    def connection(self) -> object:
        """Who reads it now; None if nobody does."""
        ...

    def give_up(self) -> None:
        """Keep nothing of it."""
        ...


class KeptBytes:
    """Counts the bytes that are kept for each client."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._of: dict[str, dict[_Kept, int]] = {}
        """The bytes of each stream by client, those first whose last event is oldest."""

    def hold(self, client: str, stream: _Kept, size: int) -> None:
        """A stream keeps so many bytes now. If all keep too many, some are given up."""
        mine = self._of.setdefault(client, {})
        self._total += size - mine.pop(stream, 0)
        if size:
            mine[stream] = size
        elif not mine:
            del self._of[client]
        while self._total > self._most and (given := self._next()) is not None:
            given.give_up()

    def _next(self) -> _Kept | None:
        by_size = sorted(self._of.values(), key=lambda streams: sum(streams.values()), reverse=True)
        return next((each for streams in by_size for each in streams if each.connection is None), None)
