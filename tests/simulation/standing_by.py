"""The thread that stands by for a blocked event loop, in virtual time: timers that no stall holds up."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ekiden.tasks.leases.standby import LeaseStore

if TYPE_CHECKING:
    from tests.simulation.world import Worker

__all__ = ["IN_THREAD", "SimulatedStandby"]

IN_THREAD: contextvars.ContextVar[bool] = contextvars.ContextVar("in_thread", default=False)
"""Whether something runs in a thread of its worker, and so goes on while the event loop is blocked."""

_LOOKS = 8


class SimulatedStandby:
    """Takes the place of `ekiden.tasks.leases.standby.Standby`."""

    def __init__(self, another: Callable[[], LeaseStore], lease_seconds: float) -> None:
        self._store: Any = another()
        self._worker: Worker = self._store.worker
        self._seconds = lease_seconds
        self._holders: dict[Any, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: set[asyncio.Task[Any]] = set()

    def add(self, holder: Any) -> None:
        self._holders[holder] = None
        if self._timer is None:
            self._wait()

    def discard(self, holder: Any) -> None:
        self._holders.pop(holder, None)

    async def stop(self) -> None:
        self._holders.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._renewing:
            await asyncio.wait(set(self._renewing))

    def _wait(self) -> None:
        context = self._worker.context()
        context.run(IN_THREAD.set, True)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._seconds / _LOOKS, self._look, context=context)

    def _look(self) -> None:
        self._timer = None
        if not self._holders:
            return
        late = [holder for holder in self._holders if holder.is_late()]
        if late and not self._renewing:
            task = asyncio.get_running_loop().create_task(self._renew(late))
            self._renewing.add(task)
            task.add_done_callback(self._renewing.discard)
        self._wait()

    async def _renew(self, late: list[Any]) -> None:
        try:
            async with asyncio.timeout(self._seconds / 2):
                await asyncio.gather(
                    *(holder.renew_by(self._store) for holder in late), return_exceptions=True
                )
        except TimeoutError:
            pass
