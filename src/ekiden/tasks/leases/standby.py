"""A thread that renews leases while the event loop is blocked.

A step that computes for a minute, or waits without an `await`, blocks the event loop of its process, and with
it the renewal of leases. The process lives and the step runs, so nobody may take its work over. The thread
looks several times in a lease whether the event loop is late. If it is, the thread renews instead, with
connections of its own.

This has a limit: an event loop that has been blocked for ten minutes is taken to be stuck for ever, and then
the leases run out. And it cannot help where nothing runs at all: a process that is stopped, or code in C that
keeps the interpreter to itself.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from ekiden.rounds.ledger import Renewal
from ekiden.tasks.store import TaskStore

__all__ = ["LeaseStore", "Leaseholder", "Standby"]

_log = logging.getLogger(__name__)

_LOOKS: Final = 8
"""How often the thread looks in a lease at least. After more looks without work it ends, and comes back."""
_LOOK_SECONDS: Final = 0.4
"""How long it waits between two looks at most. If the clock of the machine is set forward, leases are over at
once, and other workers watch them for a second."""
_STUCK_SECONDS: Final = 600.0
"""An event loop that is blocked for longer is given up: another process may take over what it holds."""
_STOP_SECONDS: Final = 5.0


class LeaseStore(Protocol):
    """What is needed of a store to renew leases. `ekiden.Store` has it."""

    @property
    def tasks(self) -> TaskStore | None:
        """Where tasks are kept."""
        ...

    async def renew(self, claims: Mapping[str, Renewal], *, until: float) -> Mapping[str, bool]:
        """Keep claims on rounds for longer."""
        ...

    async def close(self) -> None:
        """Release what the store holds."""
        ...


class Leaseholder(Protocol):
    """Has one lease or several."""

    def is_late(self) -> bool:
        """Whether a lease should have been renewed by now. Called in another thread."""
        ...

    async def renew_by(self, store: LeaseStore) -> object:
        """Renew by this store, which belongs to the event loop of another thread. A loss is not noted."""
        ...


class Standby:
    """Renews the leases of one server while its event loop is blocked. `another` opens its store again."""

    def __init__(self, another: Callable[[], LeaseStore], lease_seconds: float) -> None:
        self._another = another
        self._seconds = lease_seconds
        self._lock = threading.Lock()
        self._watching: dict[asyncio.AbstractEventLoop, _Watching] = {}
        """Mostly one. What an event loop held ends with it: the next loop does not renew it."""

    def add(self, holder: Leaseholder) -> None:
        """Watch over the leases of a holder. Call it in the event loop that renews them."""
        loop = asyncio.get_running_loop()
        with self._lock:
            watching = self._watching.get(loop)
            if watching is None:
                try:
                    watching = self._watching[loop] = _Watching(loop, self._watch)
                except RuntimeError as problem:  # The event loop renews, and the next lease tries again.
                    _log.warning("No thread stands by for a blocked event loop: %s", problem)
                    return
            watching.holders.add(holder)

    def discard(self, holder: Leaseholder) -> None:
        """The holder has no leases any more."""
        with self._lock:
            for watching in self._watching.values():
                watching.holders.discard(holder)

    async def stop(self) -> None:
        """End the thread."""
        with self._lock:
            ended = list(self._watching.values())
            self._watching.clear()
        for watching in ended:
            watching.wake.set()
        for watching in ended:
            await asyncio.to_thread(watching.thread.join, _STOP_SECONDS)

    # In the thread

    def _watch(self, watching: "_Watching") -> None:
        with contextlib.closing(_Renewing(self._another, self._seconds / 2)) as renewing:
            while not watching.wake.wait(min(self._seconds / _LOOKS, _LOOK_SECONDS)):
                try:
                    late = self._look(watching)
                    if late is None:
                        return
                    self._look_after(late, watching, renewing)
                except Exception as problem:  # The next look may go well, and nobody else would look.
                    _log.debug("It is not known whether leases are late: %r", problem)

    def _look(self, watching: "_Watching") -> list[Leaseholder] | None:
        """Who is late; None if the thread is not needed any more."""
        with self._lock:
            if self._watching.get(watching.loop) is not watching:
                return None
            watching.idle = 0 if watching.holders else watching.idle + 1
            if watching.idle > _LOOKS or watching.loop.is_closed():
                del self._watching[watching.loop]
                return None
            return [holder for holder in watching.holders if holder.is_late()]

    def _look_after(
        self, late: Collection[Leaseholder], watching: "_Watching", renewing: "_Renewing"
    ) -> None:
        blocked = watching.blocked_seconds()
        if not late or blocked > _STUCK_SECONDS:
            return
        if blocked and not watching.has_warned:
            watching.has_warned = True
            _log.warning(
                "The event loop is blocked: it has not run for %.1f s or more. Nobody is answered meanwhile."
                " Let a step that computes or waits for long be a plain `def`: it runs in a thread",
                blocked,
            )
        renewing.renew(late)


class _Watching:
    """The thread, and the event loop that it watches."""

    def __init__(self, loop: asyncio.AbstractEventLoop, watch: "Callable[[_Watching], None]") -> None:
        self.loop = loop
        self.wake = threading.Event()
        self.holders: set[Leaseholder] = set()
        self.idle = 0
        """How many looks in a row there was nothing to watch over."""
        self.has_warned = False
        """Whether it was logged that the event loop is blocked, since it ran last."""
        self._asked_at: float | None = None
        self.thread = threading.Thread(target=watch, args=(self,), name="ekiden-standby", daemon=True)
        self.thread.start()

    def blocked_seconds(self) -> float:
        """How long ago the event loop was asked to show that it runs, if it has not done so yet; else 0."""
        if self._asked_at is not None:
            return time.monotonic() - self._asked_at
        self._asked_at = time.monotonic()
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self.loop.call_soon_threadsafe(self._runs)
        return 0.0

    def _runs(self) -> None:
        self._asked_at, self.has_warned = None, False


class _Renewing:
    """What the thread renews with: an event loop and a store of its own, opened when first needed."""

    def __init__(self, another: Callable[[], LeaseStore], most_seconds: float) -> None:
        self._another = another
        self._most_seconds = most_seconds
        self._runner: asyncio.Runner | None = None
        self._store: LeaseStore | None = None

    def renew(self, late: Collection[Leaseholder]) -> None:
        """Renew leases. If that fails, it is tried again at the next look, with new connections.

        If only the time was too short for all of them, the rest comes next: to connect takes time, too.
        """
        try:
            if self._runner is None:
                runner = asyncio.Runner()
                runner.get_loop()  # It fails where no file descriptor is left.
                self._runner = runner
            self._runner.run(self._renew(late))
        except (Exception, asyncio.CancelledError) as problem:
            _log.debug("Leases are not renewed from a thread: %r", problem)
            if not isinstance(problem, TimeoutError) or all(holder.is_late() for holder in late):
                self.close()

    async def _renew(self, late: Collection[Leaseholder]) -> None:
        if self._store is None:
            self._store = self._another()
        async with asyncio.timeout(self._most_seconds):
            ended = await asyncio.gather(
                *(holder.renew_by(self._store) for holder in late), return_exceptions=True
            )
        for problem in ended:  # Now: the failure of one must not break the others off.
            if isinstance(problem, BaseException):
                raise problem

    def close(self) -> None:
        """Close the store and the event loop."""
        runner, self._runner = self._runner, None
        store, self._store = self._store, None
        if runner is not None:
            with contextlib.suppress(Exception, asyncio.CancelledError), runner:
                if store is not None:
                    runner.run(asyncio.wait_for(store.close(), self._most_seconds / 4))
