"""Virtual time beside a real database: the clock stands still while a request is on its way.

Only when every connection is silent does it jump to the next timer. So a database takes no time, and what
the database does first comes first: such a case is not the same whenever it is run.
"""

import contextvars
import logging
import os
import selectors
import socket
import time
from asyncio import selector_events
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from tests.simulation.loop import Deadlock, VirtualLoop, VirtualSelector

__all__ = ["SocketLoop", "connecting"]

_PATIENCE = 20.0
"""Real seconds after which a database that does not answer never will."""
_GRACE = 0.001
"""Real seconds for what nobody asked for (NOTIFY), after somebody was answered and before time jumps."""


class _Sockets(VirtualSelector):
    """Waits for the sockets that have something coming, and else moves the clock."""

    def __init__(self, loop: "SocketLoop") -> None:
        super().__init__(loop)
        self._sockets = loop
        self._real = selectors.DefaultSelector()
        self._is_stirred = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def heard(self, is_ready: bool) -> list[Any]:
        found = self._real.select(0)
        if not found and not is_ready:
            found = self._wait()
        if found:
            self._is_stirred = True
            self._sockets.answered()
        return found

    def _wait(self) -> list[Any]:
        deadline = time.monotonic() + _PATIENCE
        while any(True for _ in self._sockets.awaited()):
            if found := self._real.select(deadline - time.monotonic()):
                return found
            if time.monotonic() > deadline:
                raise Deadlock("the database does not answer")
        stirred, self._is_stirred = self._is_stirred, False
        return self._real.select(_GRACE) if stirred else []


class SocketLoop(VirtualLoop, selector_events.BaseSelectorEventLoop):
    """Has sockets, and knows whose connections those to the database are."""

    def __init__(self, owner: contextvars.ContextVar[Any]) -> None:
        super().__init__(owner, most_passes=2_000_000)
        self._connections: list[tuple[Any, psycopg.AsyncConnection[Any]]] = []
        self._answers = 0
        self._to_do: list[tuple[int, Callable[[], None]]] = []

    def new_selector(self) -> VirtualSelector:
        return _Sockets(self)

    def _process_events(self, event_list: list[Any]) -> None:
        selector_events.BaseSelectorEventLoop._process_events(self, event_list)  # type: ignore[attr-defined]

    def connected(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """A connection was made, by whoever runs right now."""
        self._connections.append((self._owner.get(None), connection))

    def awaited(self) -> Iterator[int]:
        """Sockets on which an answer is to come. Those who only listen wait for nothing."""
        listening = {
            connection.pgconn.socket
            for _, connection in self._connections
            if not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE
        }
        for key in self._selector.get_map().values():
            if key.fd not in listening:
                yield key.fd

    def after_answers(self, count: int, act: Callable[[], None]) -> None:
        """Do something when the database has answered so often: in the middle of what somebody asks of it."""
        self._to_do.append((self._answers + count, act))

    def answered(self) -> None:
        """Something came from the database."""
        self._answers += 1
        for due in [pair for pair in self._to_do if pair[0] <= self._answers]:
            self._to_do.remove(due)
            self.call_soon(due[1], context=contextvars.Context())

    def cut(self, owner: Any) -> None:
        """The network breaks all connections of a process, which goes on."""
        for whose, connection in self._connections:
            if whose is owner and not connection.closed:
                with socket.socket(fileno=os.dup(connection.pgconn.socket)) as other, suppress(OSError):
                    other.shutdown(socket.SHUT_RDWR)

    def bury(self, ready: bool) -> bool:
        """The sockets of the dead are closed, too: what they had not committed is undone."""
        if self.is_dead is not None:
            for key in list(self._selector.get_map().values()):
                if any(handle is not None and self._is_buried(handle) for handle in key.data):
                    self.keep(key)
                    self._selector.unregister(key.fileobj)
            for owner, connection in self._connections:
                if owner is not None and self.is_dead(owner):
                    connection.pgconn.finish()
        return super().bury(ready)

    def close(self) -> None:
        for _, connection in self._connections:
            connection.pgconn.finish()
        super().close()


@contextmanager
def connecting(loop: SocketLoop) -> Iterator[None]:
    """Tell the loop of every connection that is made. That one is broken is nothing to log here."""
    usual, pool = psycopg.AsyncConnection.__init__, logging.getLogger("psycopg")
    level = pool.level

    def connect(self: psycopg.AsyncConnection[Any], *arguments: Any, **options: Any) -> None:
        usual(self, *arguments, **options)
        loop.connected(self)

    psycopg.AsyncConnection.__init__ = connect  # type: ignore[method-assign]
    pool.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        psycopg.AsyncConnection.__init__ = usual  # type: ignore[method-assign]
        pool.setLevel(level)
