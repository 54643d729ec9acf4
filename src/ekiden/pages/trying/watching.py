"""Things that tell open pages which of their parts have changed."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

__all__ = ["Watched", "gathered"]

_TOGETHER_SECONDS: Final = 0.03
"""What changes within this time is drawn at once."""


class Watched:
    """Something with named parts."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Queue[str]] = set()

    @contextmanager
    def watching(self, queue: "asyncio.Queue[str]") -> Generator[None, None, None]:
        """Put the names of changed parts into a queue."""
        self._watchers.add(queue)
        try:
            yield
        finally:
            self._watchers.discard(queue)

    def changed(self, *parts: str) -> None:
        """Tell all watchers."""
        for queue in self._watchers:
            for part in parts:
                queue.put_nowait(part)


async def gathered(queue: "asyncio.Queue[str]") -> set[str]:
    """Wait for a change; the names of all parts that changed about then."""
    parts = {await queue.get()}
    await asyncio.sleep(_TOGETHER_SECONDS)
    while not queue.empty():
        parts.add(queue.get_nowait())
    return parts
