"""A thread that runs one function after another, and can be ended while it is idle."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["OneThread"]

T = TypeVar("T")


class OneThread:
    """One thread. It starts with the first `submit`, and again with the first one after `rest`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._busy = 0

    def submit(self, work: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Run a function after those that were submitted before."""
        with self._lock:
            self._busy += 1
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, self._name)
            return self._executor.submit(self._run, work, arguments)

    def _run(self, work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        try:
            return work(*arguments)
        finally:
            with self._lock:
                self._busy -= 1

    def rest(self) -> None:
        """End the thread if it is idle."""
        with self._lock:
            if not self._busy and self._executor is not None:
                self._executor.shutdown(wait=False)
                self._executor = None
