"""How many passes of the event loop something takes."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class Passes:
    """Counts the passes of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    def _tick(self) -> None:
        self.count += 1
        self._next = asyncio.get_running_loop().call_soon(self._tick)

    @contextmanager
    def counted(self) -> Generator[None, None, None]:
        self._tick()
        try:
            yield
        finally:
            self._next.cancel()
