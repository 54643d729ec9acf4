"""Who runs tasks: claims one, runs its handler over the stored journal, commits as it goes, lets go.

A claim is a lease that is renewed while its holder lives. A runner believes the store, never its own
memory: every commit names the fence, and one that was lost ends the leg on the spot. What it hears
from the store's signals only makes it look sooner.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final, TypeVar

import msgspec

from ekiden.errors import InternalError, StoreUnavailable
from ekiden.tasks.moves import LostClaim
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.run import Run, Work, spell_error
from ekiden.tasks.store import Held, Signal, TaskStore

__all__ = ["Runner", "TaskLimits"]

_log = logging.getLogger("ekiden.tasks")

T = TypeVar("T")

_SOON: Final = 0.02
"""Seconds before the next look where the last one found something due that could not be had."""

_NAG_SECONDS: Final = 1.0
"""How long a loop has to hear that it is cancelled before it is told again."""

_MOST_FOREIGN: Final = 1000


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long tasks live and how they are run."""

    ttl_seconds: float | None = 86_400.0
    """How long a task is kept from its creation on, unless its handler says otherwise; None is for ever."""
    keep_seconds: float = 3600.0
    """How long what is left of it can still be seen after that."""
    poll_seconds: float = 1.0
    """How often a client should look, unless the handler says otherwise. Looking is cheap here."""
    lease_seconds: float = 15.0
    """After this long without a sign of life, another worker takes a task over."""
    concurrency: int = 50
    """Tasks that one process runs at once. What waits for an answer or a timer runs nowhere."""
    attempts: int = 5
    """Workers that a task may lose in a row without any progress before it is given up."""
    message_seconds: float = 1.0
    """Progress is written to the store at most this often."""
    sweep_seconds: float = 5.0
    """How often a worker looks by itself, in case a signal was lost."""


class Runner:
    """Runs the tasks of one server in one process."""

    def __init__(
        self,
        store: TaskStore,
        find: Callable[[TaskRecord], Work | None],
        *,
        audience: str,
        clock: Callable[[], float],
        limits: TaskLimits,
    ) -> None:
        self.store = store
        self.limits = limits
        self._find = find
        self._audience = audience
        self._clock = clock
        self._runs: dict[str, Run] = {}
        self._promised = 0
        self._claiming: set[asyncio.Task[None]] = set()
        self._beside: set[asyncio.Task[None]] = set()
        """What runs look up and tell beside their legs."""
        self._foreign: set[str] = set()
        """Tasks whose tools are not here; a rolling upgrade has such for a while."""
        self._wake = asyncio.Event()
        self._planned = 0.0
        self._loops: list[asyncio.Task[None]] = []
        self._unwatch: Callable[[], None] | None = None
        self._stopping = False
        self._surroundings = contextvars.Context()
        """The context variables that every leg begins with, whoever wakes it."""

    # Coming and going

    async def start(self) -> None:
        """Begin to look for work."""
        self._stopping = False
        self._surroundings = contextvars.copy_context()
        self._wake = asyncio.Event()
        self._unwatch = self.store.watch(self._on_signal, works=self.limits.concurrency > 0)
        self._loops = [asyncio.create_task(self._dispatch()), asyncio.create_task(self._renew())]

    async def stop(self, grace: float = 10.0) -> None:
        """Hand everything over: running steps end and are committed, then other workers go on."""
        self._stopping = True
        self._wake.set()
        ended, self._loops = self._loops, self._loops[1:]
        await _end(ended[:1], grace)  # No new work; the leases are renewed until the old is done.
        if self._claiming:
            await asyncio.wait(set(self._claiming), timeout=grace)  # What is claimed is handed over, too.
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        if self._beside:
            await asyncio.wait(set(self._beside), timeout=grace)
        await _end(ended[1:], grace)  # What they were asking the store is over, too.
        self._loops = []
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    @property
    def _room(self) -> int:
        return self.limits.concurrency - len(self._runs) - self._promised

    def promise(self) -> bool:
        """Keep room for one more task, if there is any; `keep_promise` when it is known whether it comes."""
        if not self._loops or self._stopping or self._room <= 0:
            return False
        self._promised += 1
        return True

    def keep_promise(self, held: Held | None) -> None:
        """Run the task for which room was kept, if it came."""
        self._promised -= 1
        if held is None:
            self._wake.set()
        else:
            self.adopt(held)

    def adopt(self, held: Held) -> None:
        """Run a task that is claimed already."""
        run = Run(self, held)
        self._runs[held.record.id] = run
        # Not with the context of the request that happens to become a task: other legs do not have it.
        run.task = asyncio.create_task(self._guard(run), context=self._surroundings.copy())

    async def _guard(self, run: "Run") -> None:
        try:
            await run.perform()
        except LostClaim as lost:
            _log.info("A leg of a task ended without effect: %s", lost)
        except asyncio.CancelledError:
            await run.hand_over()
        except Exception:
            _log.exception("A leg of task %s failed; its lease will lapse", run.id)
        finally:
            self._runs.pop(run.id, None)
            self._wake.set()

    # Looking for work

    def _on_signal(self, signal: Signal) -> None:
        run = self._runs.get(signal.task_id)
        if run is not None:
            run.look_soon()
        elif signal.due is not None and signal.due < self._planned:
            if signal.due <= self._clock() and signal.task_id not in self._foreign and self.promise():
                claiming = asyncio.create_task(self._claim(signal.task_id))
                self._claiming.add(claiming)
                claiming.add_done_callback(self._claiming.discard)
            else:
                self._wake.set()

    async def _claim(self, task_id: str) -> None:
        """Claim a task that is said to be due, without looking around."""
        held: Held | None = None
        try:
            held = await self.store.claim(task_id, now=self._clock(), lease=self.limits.lease_seconds)
        except StoreUnavailable as problem:
            _log.warning("The store cannot be reached: %s", problem)
        finally:
            self.keep_promise(held if task_id not in self._runs else None)

    async def _dispatch(self) -> None:
        swept = float("-inf")
        while not self._stopping:  # What is asked of the store may swallow a cancellation.
            self._wake.clear()
            try:
                if self._clock() - swept >= self.limits.sweep_seconds:
                    swept = self._clock()
                    await self.sweep()
                delay = await self._fill()
            except StoreUnavailable as problem:
                _log.warning("The store cannot be reached: %s", problem)
                delay = min(1.0, self.limits.sweep_seconds)
            except Exception:
                _log.exception("Looking for tasks failed")
                delay = self.limits.sweep_seconds
            self._planned = self._clock() + delay
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()

    async def _fill(self) -> float:
        """Claim what is due, as far as there is room; seconds until the next look."""
        now = self._clock()
        if self._room <= 0:
            return self.limits.sweep_seconds  # Whoever ends wakes us.
        ids = [
            task_id
            for task_id in await self.store.due(
                self._audience, now=now, limit=self._room + len(self._runs) + len(self._foreign)
            )
            if task_id not in self._runs and task_id not in self._foreign
        ]
        lease = self.limits.lease_seconds
        ids = ids[: max(self._room, 0)]
        self._promised += len(ids)
        try:
            claims = [self.store.claim(task_id, now=now, lease=lease) for task_id in ids]
            claimed = [held for held in await asyncio.gather(*claims) if held is not None]
        finally:
            self._promised -= len(ids)
        for held in claimed:
            self.adopt(held)
        upcoming = await self.store.next_due(self._audience)
        if upcoming is None:
            return self.limits.sweep_seconds
        soonest = 0.0 if claimed else self.limits.sweep_seconds if self._foreign else _SOON
        return min(max(upcoming - self._clock(), soonest), self.limits.sweep_seconds)

    async def sweep(self) -> None:
        """Fail what has expired, and forget what expired long ago."""
        now = self._clock()
        if len(self._foreign) > _MOST_FOREIGN:
            self._foreign.clear()
        if ids := await self.store.overdue(now=now, limit=100):
            error = spell_error(InternalError("The task expired"))
            await self.store.expire(ids, error, now=now, message="The task's time to live is over.")
        await self.store.forget(before=now - self.limits.keep_seconds)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.limits.lease_seconds / 3)
            held = {run.id: run.fence for run in self._runs.values()}
            if not held:
                continue
            try:
                until = self._clock() + self.limits.lease_seconds
                still = await self.store.extend(held, until=until)
            except StoreUnavailable as problem:
                _log.warning("Leases cannot be renewed: %s", problem)
                continue
            for task_id in held:
                if (run := self._runs.get(task_id)) is not None and run.fence == held[task_id]:
                    run.look_soon() if task_id in still else run.lose()

    # For the runs

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside a leg. It may end later than that, but not after the runner has stopped."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def insist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try until the store can be reached. Nothing happens then if somebody took the task over."""
        pause = 0.05
        while True:
            try:
                return await work()
            except StoreUnavailable as problem:
                _log.warning("A task waits for its store: %s", problem)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)

    def now(self) -> float:
        """The time."""
        return self._clock()

    def leave_to_others(self, task_id: str) -> None:
        """Do not claim this task: its tool is not here."""
        self._foreign.add(task_id)

    def find(self, record: TaskRecord) -> Work | None:
        """The tool of a task, if this server has it."""
        return self._find(record)


async def _end(tasks: Collection[asyncio.Task[None]], grace: float) -> None:
    """Cancel tasks until they have heard it: what they wait for may swallow a cancellation."""
    deadline = asyncio.get_running_loop().time() + grace
    pending = {task for task in tasks if not task.done()}
    while pending and asyncio.get_running_loop().time() < deadline:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_NAG_SECONDS)
