"""For tests with short timers: real parts, and a loop that does not wait where nobody could say anything.

Where only a timer could go on, the clock moves to it. So nothing is waited for, and how long code takes does
not count: a test with scopes of a tenth of a second ends alike on a machine that is busy. Where a socket is
open, or a thread runs that is a handler's or a test's own, the loop waits as ever. While the thread of a
store is at work, time stands still.

The `conftest.py` of a folder imports `pytest_asyncio_loop_factories` and `_threads_are_counted` to have its
tests run so, all but those that are marked with `real_time`. `clock` is for servers: their leases end by it.
"""

import asyncio
import concurrent.futures
import contextlib
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

__all__ = ["VirtualTimeLoop", "_threads_are_counted", "clock", "pytest_asyncio_loop_factories"]

_FROM: Final = 1_000_000.0
"""What the clock of a loop says when it is made."""
_STORES: Final = "ekiden-sqlite"
"""How the names of threads begin that work for a store."""
_KNOWN: Final = ("ekiden-", "asyncio_")
"""How the names of threads begin that are counted when they work, or say nothing that is waited for."""
_PATIENCE: Final = 20.0
"""Seconds for which time stands still while a store works."""
_SPINS: Final = 1000
"""Passes in a row after which time goes on although something is ready: a cancelled scope of anyio asks again
in every pass until its body has ended."""
_STEP: Final = 0.001
"""Seconds for which each further pass counts."""


class _Selector(selectors.DefaultSelector):
    """Takes the place of the selector: what would be a wait moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = _FROM
        self._spins = 0
        self._threads = set(threading.enumerate())

    def select(self, timeout: float | None = None) -> list[Any]:
        # First who could say something, then what has come: whoever ends between the two has been heard.
        works = _at_work.names()
        if timeout is not None and timeout <= 0:
            heard = super().select(0)
            self._spin(works)
            return heard
        self._spins = 0
        outside = self._has_outside(works)
        if heard := super().select(0):
            return heard
        if any(name.startswith(_STORES) for name in works):
            return super().select(_PATIENCE)
        if timeout is not None and not outside:
            self.now += timeout
            return []
        began = time.monotonic()
        heard = super().select(timeout)
        self.now += time.monotonic() - began
        return heard

    def _has_outside(self, works: Sequence[str]) -> bool:
        """Whether somebody might say something: a socket is open besides the loop's own, or a thread runs."""
        return (
            bool(works)
            or len(self.get_map()) > 1
            or any(not thread.name.startswith(_KNOWN) for thread in {*threading.enumerate()} - self._threads)
        )

    def _spin(self, works: Sequence[str]) -> None:
        self._spins += 1
        if self._spins > _SPINS:
            if self._has_outside(works):
                time.sleep(_STEP)
            self.now += _STEP


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that does not wait where nobody outside could say anything."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    def run_forever(self) -> None:
        global _running
        before, _running = _running, self
        try:
            super().run_forever()
        finally:
            _running = before


_running: VirtualTimeLoop | None = None
_DAY: Final = time.time() - _FROM


def clock() -> float:
    """The time of day, for a server: it goes on as the running loop does, and is the same in all threads."""
    return time.time() if _running is None else _running.time() + _DAY


class _AtWork:
    """The threads of pools that are at work, by the names of their pools."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: list[str] = []

    def names(self) -> list[str]:
        with self._lock:
            return [*self._names]

    def begin(self, name: str) -> None:
        with self._lock:
            self._names.append(name)

    def end(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._names.remove(name)
        with contextlib.suppress(RuntimeError):  # The loop may be closed.
            loop.call_soon_threadsafe(lambda: None)


_at_work: Final = _AtWork()


@pytest.fixture(autouse=True)
def _threads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that is given to threads is known of, so that no clock runs ahead of it."""
    pool = concurrent.futures.ThreadPoolExecutor
    submit = pool.submit

    def counted(self: Any, *arguments: Any, **keywords: Any) -> Any:
        future = submit(self, *arguments, **keywords)
        with contextlib.suppress(RuntimeError):
            loop, name = asyncio.get_running_loop(), self._thread_name_prefix
            _at_work.begin(name)
            # In the next pass: whoever waits for the work is to hear of its end before it counts as ended.
            loop.call_soon(future.add_done_callback, lambda _: _at_work.end(name, loop))
        return future

    monkeypatch.setattr(pool, "submit", counted)


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualTimeLoop}
