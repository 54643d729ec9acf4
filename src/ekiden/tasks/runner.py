"""The worker: claims tasks, runs their handlers over the stored journals, and lets go.

A claim is a lease that is renewed while its holder lives (`leases`). A runner relies on the store, never on
its own memory: every commit names the fence, and if that was lost, the leg is ended. Signals of the
store only make it look sooner.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, Final, TypeVar

from ekiden.errors import LostClaim, StoreUnavailable
from ekiden.tasks.leases.renewing import Asked, Leases, answer_of
from ekiden.tasks.leases.standby import Standby
from ekiden.tasks.limits import TaskLimits
from ekiden.tasks.observer import TaskObserver, Unobserved
from ekiden.tasks.outcomes import EXPIRED, WHY_EXPIRED
from ekiden.tasks.queue import SUSPECT, Queue
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.run import Run
from ekiden.tasks.store import Due, Held, Signal, TaskStore
from ekiden.tasks.work import Work

__all__ = ["Runner", "TaskLimits"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_SOON: Final = 0.02
"""Seconds before the next look where the last one found something due that could not be had."""

_HELD_BACK_SECONDS: Final = 0.25
"""Seconds before the next look where something is due that has to wait, such as a second suspect."""

_QUIET_SECONDS: Final = 0.3
"""What ends this soon when the runner is stopped is not worth a line."""
_NAG_SECONDS: Final = 1.0
"""How long a loop may take to end before it is cancelled again."""

_FOUND_AT_ONCE: Final = 200
"""Due tasks that are looked at before some of them are chosen."""
_MOST_FOUND: Final = 20_000
"""The same, where so many have to wait that those behind them would never be seen."""
_WIDER: Final = 4

_OVERDUE_AT_ONCE: Final = 100
_MOST_SWEEPS: Final = 1000
"""How often a sweep looks for more that has expired."""

_LONGEST_WAIT: Final = 1.0
"""Seconds between two tries while the store is away."""


class Runner:
    """Runs the tasks of one server in one process. Implements `ekiden.tasks.work.Worker`."""

    # There from `start` on:
    leases: Leases
    _stopping: bool
    _surroundings: contextvars.Context
    """The context variables that every leg begins with."""

    def __init__(
        self,
        store: TaskStore,
        find: Callable[[TaskRecord], Work | None],
        *,
        tools: Callable[[], Collection[str]],
        audience: str,
        clock: Callable[[], float],
        limits: TaskLimits,
        observer: TaskObserver | None = None,
        result_bytes: int,
        standby: Standby | None = None,
    ) -> None:
        self.store = store
        self.observer = observer or Unobserved()
        self.result_bytes = result_bytes
        self.limits = limits
        self._find = find
        self._tools = tools
        self._audience = audience
        self._clock = clock
        self._standby = standby
        self._runs: dict[str, Run] = {}
        self._reserved = 0
        self._is_crowded = False
        """Whether more is due than there are slots: then a new task waits for its turn like all others."""
        self._left_some = False
        """Whether something due could not be taken at the last look: then the end of a leg wakes us."""
        self._queue = Queue(limits.lease_seconds, limits.attempts)
        self._looked_at = _FOUND_AT_ONCE
        """Due tasks that are looked at now."""
        self._beside: set[asyncio.Task[None]] = set()
        """What runs read and write beside their legs."""
        self._wake = asyncio.Event()
        self._planned = 0.0
        self._loops: list[asyncio.Task[None]] = []
        self._unwatch: Callable[[], None] | None = None

    # Coming and going

    async def start(self) -> None:
        """Begin to look for work."""
        self._stopping = False
        self._surroundings = contextvars.copy_context()
        self._wake = asyncio.Event()
        self._unwatch = self.store.watch(self._on_signal, works=self.limits.concurrency > 0)
        self.leases = Leases(self.store, self._runs, self._clock, self.limits.lease_seconds, self._standby)
        loops = (self._dispatch, self._sweep_now_and_then, self.leases.keep_renewing)
        self._loops = [asyncio.create_task(loop()) for loop in loops]

    def forget(self) -> None:
        """Begin anew: the event loop of all that runs is closed. What ran is due when its lease runs out."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        self._runs.clear()
        self._beside.clear()
        self._loops = []
        self._reserved = 0

    async def stop(self, grace: float | None = None) -> None:
        """Hand everything over: running steps end and are committed, then other workers go on."""
        seconds = self.limits.grace_seconds if grace is None else grace
        deadline = asyncio.get_running_loop().time() + seconds
        self._stopping = True
        self._wake.set()
        looking, self._loops = self._loops[:-1], self._loops[-1:]
        await _end(looking, deadline)
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        telling = asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._tell_what_runs, seconds)
        await _wait(tasks, deadline)  # Their leases are renewed until they have ended.
        await _wait(self._beside, deadline)
        telling.cancel()
        for run in self._runs.values():
            run.abandon()
            _log.warning(
                "Task %s has not come to a rest within %g s; another worker runs its last step again, when "
                "the lease has run out",
                run.id,
                seconds,
            )
        await _end(self._loops, deadline + _NAG_SECONDS)  # What they were asking the store is over, too.
        self._loops = []
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _tell_what_runs(self, seconds: float) -> None:
        """Log what `stop` waits for."""
        if self._runs:
            tools = ", ".join(sorted(run.tool for run in self._runs.values()))
            _log.warning("Waiting up to %g s for the running steps of tasks (%s)", seconds, tools)

    @property
    def _room(self) -> int:
        """How many more tasks can be run. Those that only wait for their last commit do not count."""
        if self._is_isolated:
            return 0
        most = self.limits.concurrency
        running = sum(not run.is_ending for run in self._runs.values())
        return min(most - running, 2 * most - len(self._runs)) - self._reserved

    def reserve(self) -> Asked | None:
        """Take one concurrency slot; None if all are taken. Give it back or use it with `settle`."""
        if not self._loops or self._stopping or self._is_crowded or self._room <= 0:
            self._is_crowded = self.limits.concurrency > 0
            return None
        self._reserved += 1
        return self.leases.asked()

    def settle(self, held: Held | None, asked: Asked) -> None:
        """Use the slot for a task that was made and claimed, or give it back."""
        self._reserved -= 1
        if held is None:
            self._wake.set()
        else:
            self._adopt(held, asked)

    def _adopt(self, held: Held, asked: Asked) -> None:
        run = Run(self, held, asked)
        self._runs[held.record.id] = run
        self.observer.runs(run.tool, 1)
        # Not with the context of the request that becomes a task: the other legs do not have it.
        run.task = asyncio.create_task(self._guard(run), context=self._surroundings.copy())

    async def _guard(self, run: Run) -> None:
        try:
            await run.perform()
        except LostClaim as lost:
            _log.info("A leg of a task was dropped: %s", lost)
        except asyncio.CancelledError:
            await run.hand_over()
        except Exception:
            _log.exception("A leg of task %s failed; its lease will lapse", run.id)
        finally:
            self._runs.pop(run.id, None)
            run.forget()
            self.observer.runs(run.tool, -1)
            self.made_room()

    # Looking for work

    def _on_signal(self, signal: Signal) -> None:
        run = self._runs.get(signal.task_id)
        if run is not None:
            run.look_soon()
        if signal.due is not None and signal.due < self._planned:
            self._wake.set()

    async def _dispatch(self) -> None:
        while not self._stopping:  # What is asked of the store may swallow a cancellation.
            self._wake.clear()
            try:
                delay = await answer_of(self._fill())
            except Exception as problem:
                if isinstance(problem, StoreUnavailable):
                    _log.warning("The store cannot be reached: %s", problem)
                else:
                    _log.exception("Looking for tasks failed")
                self._queue.interrupted()
                delay = min(_LONGEST_WAIT, self.limits.sweep_seconds)
            self._planned = self._clock() + delay
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()

    async def _fill(self) -> float:
        """Claim what is due, as far as there is room; seconds until the next look."""
        room, tools = self._room, self._tools()
        self._left_some = True
        if room <= 0 or not tools:
            return self.limits.sweep_seconds  # The end of a leg wakes us.
        asked = self.leases.asked()
        limit = max(self._looked_at, 2 * room)
        found = await self.store.due(self._audience, tools, now=asked.wall, limit=limit)
        others = [each for each in found if each.id not in self._runs]
        if self._queue.is_surprised_by(others):
            # Can leases be renewed now? A store that can only be read, such as a locked file, silences all.
            await self.store.extend({}, until=asked.wall)
        chosen = self._queue.choose(
            others,
            room=room,
            now=asked.wall,
            time=asyncio.get_running_loop().time(),
            has_suspect=self._has_suspect,
            is_idle=not self._runs and not self._reserved,
        )
        self._is_crowded = len(others) > room
        if self._look_further(len(found), limit, is_enough=len(chosen) >= room):
            if chosen:
                await self._claim(chosen, others)
            return 0.0
        if chosen:
            had = await self._claim(chosen, others)
            if not had or self._is_crowded:
                return 0.0 if had else _SOON  # There is more, or another worker was faster.
        upcoming = await self.store.next_due(self._audience, tools)
        self._left_some = upcoming is not None and upcoming <= self._clock()
        return self._until(upcoming)

    def _look_further(self, found: int, limit: int, *, is_enough: bool) -> bool:
        """Whether to look again at once, behind those that have to wait: suspects above all."""
        if found < min(limit, _FOUND_AT_ONCE):
            self._looked_at = _FOUND_AT_ONCE
        if is_enough or found < limit or limit >= _MOST_FOUND:
            return False
        self._looked_at = limit * _WIDER
        return True

    async def _claim(self, chosen: Sequence[str], found: Sequence[Due]) -> int:
        asked, held = self.leases.asked(), list[Held]()
        self._reserved += len(chosen)
        try:
            lease = self.limits.lease_seconds
            held = await self.store.claim_all(chosen, now=asked.wall, lease=lease)
        finally:
            self._reserved -= len(chosen)
            for each in held:
                self._adopt(each, asked)
        waited = {each.id: each for each in found}
        for each in held:
            before = waited[each.record.id]
            lag, lapsed = asked.wall - before.due, before.state in ("running", "stopping")
            self.observer.claimed(each.record.tool, lag, taken_over=lapsed)
        return len(held)

    @property
    def _is_isolated(self) -> bool:
        """Whether a task has its last try here, and has not lived for as long as a lease yet."""
        last = max(SUSPECT, self.limits.attempts - 1)
        began = asyncio.get_running_loop().time() - self.limits.lease_seconds
        return any(run.losses >= last and run.began > began for run in self._runs.values())

    @property
    def _has_suspect(self) -> bool:
        return any(run.losses >= SUSPECT for run in self._runs.values())

    def _until(self, upcoming: float | None) -> float:
        """Seconds until the next look. What is due and was not taken is watched, or has to wait."""
        if upcoming is None:
            return self.limits.sweep_seconds
        until = upcoming - self._clock()
        if until <= 0:
            until = self._queue.look_again(asyncio.get_running_loop().time()) or _HELD_BACK_SECONDS
        return min(max(until, _SOON), self.limits.sweep_seconds)

    # Keeping the store in order

    async def _sweep_now_and_then(self) -> None:
        while not self._stopping:
            try:
                await answer_of(self.sweep())
            except StoreUnavailable as problem:
                _log.info("What has expired was not looked for: %s", problem)
            except Exception:
                _log.exception("Looking for what has expired failed")
            await asyncio.sleep(self.limits.sweep_seconds)

    async def sweep(self) -> None:
        """Fail what has expired, and forget what expired long ago."""
        for _ in range(_MOST_SWEEPS):
            now = self._clock()
            ids = await self.store.overdue(now=now, limit=_OVERDUE_AT_ONCE)
            for record in await self.store.expire(ids, EXPIRED, now=now, message=WHY_EXPIRED):
                self.observer.moved(record.tool, record.state)
            if len(ids) < _OVERDUE_AT_ONCE:
                break
        await self.store.forget(before=self._clock() - self.limits.keep_seconds, audience=self._audience)

    # For the runs

    def made_room(self) -> None:
        """A leg has ended, or only has to be committed: there is room for another, if one waits for it."""
        if self._left_some or self._is_crowded:
            self._wake.set()

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside a leg. It may end later than that, but not after the runner has stopped."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def insist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try until the store can be reached. If another worker took the task over, nothing happens then."""
        pause = 0.05
        while True:
            try:
                return await answer_of(work())
            except StoreUnavailable as problem:
                _log.warning("A task waits for its store: %s", problem)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_WAIT)

    def now(self) -> float:
        """The time."""
        return self._clock()

    def find(self, record: TaskRecord) -> Work | None:
        """The tool of a task, if this server has it."""
        return self._find(record)


async def _wait(tasks: Collection[asyncio.Task[None]], deadline: float) -> None:
    if tasks:
        await asyncio.wait(set(tasks), timeout=max(0.0, deadline - asyncio.get_running_loop().time()))


async def _end(tasks: Collection[asyncio.Task[None]], deadline: float) -> None:
    """Cancel tasks until they end: what they wait for may swallow a cancellation."""
    pending = {task for task in tasks if not task.done()}
    while pending and asyncio.get_running_loop().time() < deadline:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_NAG_SECONDS)
