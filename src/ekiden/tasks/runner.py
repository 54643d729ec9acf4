"""Who runs tasks: claims one, runs its handler over the stored journal, commits as it goes, lets go.

A claim is a lease that is renewed while its holder lives. A runner believes the store, never its own
memory: every commit names the fence, and one that was lost ends the leg on the spot. What it hears
from the store's signals only makes it look sooner.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from ekiden.errors import InternalError, NonDeterminismError, ProtocolError, StoreUnavailable
from ekiden.rounds.journal import Entry
from ekiden.rounds.leg import Ended, Suspended
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.tasks import moves
from ekiden.tasks.leg import TaskCancelled, TaskJournal, TaskLeg
from ekiden.tasks.moves import Ending, LostClaim
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.store import Held, Signal, TaskStore
from ekiden.wire.json import UNSPEAKABLE, encode

__all__ = ["Runner", "TaskLimits", "Work", "ending_of"]

_log = logging.getLogger("ekiden.tasks")

T = TypeVar("T")

_SOON: Final = 0.02
"""Seconds before the next look where the last one found something due that could not be had."""


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


class Work(Protocol):
    """A task's tool, as the server that has it knows it."""

    title: str
    capabilities: Mapping[str, Any]
    tidies: bool
    """Whether there is a clean-up for cancelled tasks."""

    async def run(self, leg: TaskLeg, say: Callable[[str], None]) -> Outcome | Suspended:
        """Run the handler. `say` takes its status message."""
        ...

    async def tidy(self, entries: Mapping[str, Entry]) -> None:
        """Clean up after a cancellation."""
        ...


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
        self._runs: dict[str, _Run] = {}
        self._promised = 0
        self._claiming: set[asyncio.Task[None]] = set()
        self._foreign: set[str] = set()
        """Tasks whose tools are not here; a rolling upgrade has such for a while."""
        self._wake = asyncio.Event()
        self._planned = 0.0
        self._loops: list[asyncio.Task[None]] = []
        self._unwatch: Callable[[], None] | None = None
        self._stopping = False

    # Coming and going

    async def start(self) -> None:
        """Begin to look for work."""
        self._stopping = False
        self._wake = asyncio.Event()
        self._unwatch = self.store.watch(self._on_signal, works=self.limits.concurrency > 0)
        self._loops = [asyncio.create_task(self._dispatch()), asyncio.create_task(self._renew())]

    async def stop(self, grace: float = 10.0) -> None:
        """Hand everything over: running steps end and are committed, then other workers go on."""
        self._stopping = True
        if self._loops:
            self._loops.pop(0).cancel()  # No new work; the leases are renewed until the old is done.
        if self._claiming:
            await asyncio.wait(set(self._claiming), timeout=grace)  # What is claimed is handed over, too.
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for loop in self._loops:
            loop.cancel()
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
        run = _Run(self, held)
        self._runs[held.record.id] = run
        run.task = asyncio.create_task(self._guard(run))

    async def _guard(self, run: "_Run") -> None:
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
        while True:
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
            error = _spell_error(InternalError("The task expired"))
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


class _Run:
    """One task while this process holds it. Implements `ekiden.rounds.ledger.RoundMemory` for its leg."""

    def __init__(self, runner: Runner, held: Held) -> None:
        self._runner = runner
        self._store = runner.store
        self._held = held
        self.id = held.record.id
        self.fence = held.fence
        self.task: asyncio.Task[None] | None = None
        self._leg: TaskLeg | None = None
        self._journal = TaskJournal(held.entries)
        self._lost = False
        self._look_again = False
        self._looking: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._message: str | None = None
        self._told_at = float("-inf")
        self._writing = asyncio.Lock()

    # Running

    async def perform(self) -> None:
        """Run the task to the end of a leg."""
        record, runner = self._held.record, self._runner
        work = runner.find(record)
        if work is None:
            _log.warning("Task %s wants tool %r, which is not here; put back", self.id, record.tool)
            runner.leave_to_others(self.id)
            await self._store.release(
                self.id, self.fence, now=runner.now(), after=runner.limits.sweep_seconds
            )
        elif record.state == "tidying":
            await self._tidy(work)
        elif record.attempts > runner.limits.attempts:
            await self._fail("The task was given up: its workers were lost too often")
        else:
            await self._run_leg(work)

    async def _run_leg(self, work: Work) -> None:
        leg = self._leg = TaskLeg(
            work.title,
            self._held,
            self._journal,
            capabilities=work.capabilities,
            clock=self._runner.now,
            memory=self,
            on_news=self._on_news,
        )
        if self._look_again:
            self.look_soon()
        try:
            ended = await work.run(leg, self._say)
        except TaskCancelled:
            await self._stop(work)
            return
        except Ended:
            raise LostClaim(f"task {self.id} was lost in the middle of a leg") from None
        except NonDeterminismError as error:
            _log.error("Task %s: %s", self.id, error)
            ended = Failed(InternalError(f"NonDeterminismError: {error}"))
        finally:
            self._quieten()
        await self._end(leg, ended, work)

    async def _end(self, leg: TaskLeg, ended: Outcome | Suspended, work: Work) -> None:
        now = self._runner.now()
        async with self._writing:
            unsaved, self._journal.unsaved = self._journal.unsaved, {}
            if isinstance(ended, Suspended):
                leaves = leg.leaves(ended, self._message)
                try:
                    await self._runner.insist(
                        lambda: self._store.suspend(self.id, self.fence, leaves, unsaved, now=now)
                    )
                except LostClaim:
                    # Cancelled at the moment when the leg came to rest: there is no handler to tell.
                    current = await self._store.load(self.id)
                    if current is None or current.fence != self.fence or current.state != "stopping":
                        raise
                    await self._stop(work)
                return
            ending = ending_of(ended)
            message = self._message if isinstance(ended, Failed) else None  # How far it came.
            await self._runner.insist(
                lambda: self._store.finish(self.id, self.fence, ending, unsaved, now=now, message=message)
            )

    async def _fail(self, why: str) -> None:
        _log.error("Task %s: %s", self.id, why)
        ending = Ending(error=_spell_error(InternalError(why)))
        now = self._runner.now()
        await self._runner.insist(lambda: self._store.finish(self.id, self.fence, ending, now=now))

    async def _stop(self, work: Work) -> None:
        now, lease = self._runner.now(), self._runner.limits.lease_seconds
        await self._runner.insist(
            lambda: self._store.stop(self.id, self.fence, now=now, lease=lease, tidy=work.tidies)
        )
        if work.tidies:
            await self._tidy(work)

    async def _tidy(self, work: Work) -> None:
        if work.tidies and self._held.record.attempts <= self._runner.limits.attempts:
            try:
                await work.tidy(self._journal.entries)
            except Exception:
                _log.exception("The clean-up of task %s failed", self.id)
        await self._runner.insist(lambda: self._store.tidied(self.id, self.fence))

    async def hand_over(self) -> None:
        """The process ends, or the claim is lost: in the first case others may go on at once."""
        self._quieten()
        if self._lost:
            return
        async with self._writing:
            await self._release()

    async def _release(self) -> None:
        with contextlib.suppress(LostClaim, StoreUnavailable):
            unsaved, self._journal.unsaved = self._journal.unsaved, {}
            if unsaved:
                await self._store.append(self.id, self.fence, unsaved)
            await self._store.release(self.id, self.fence, now=self._runner.now())

    # What the leg commits

    async def recall(self) -> Mapping[str, Entry]:
        """Everything is in the journal already."""
        return {}

    async def commit(self, entries: Mapping[str, Entry]) -> None:
        """Commit a step as it ends, with what led to it."""
        batch = {**self._journal.unsaved, **entries}
        if not batch:
            return
        self._journal.unsaved = {}
        state = await self._runner.insist(lambda: self._store.append(self.id, self.fence, batch))
        if state is None:
            self._lost = True
            raise Ended(Failed(InternalError("The task was taken over by another worker")))
        self._journal.committed.update(entries)
        if state == "stopping" and self._leg is not None:
            self._leg.cancel()

    # What others do meanwhile

    def look_soon(self) -> None:
        """Something may have changed: look."""
        if self._leg is None:
            self._look_again = True
        elif self._looking is None or self._looking.done():
            self._look_again = False
            self._looking = asyncio.create_task(self._look())
        else:
            self._look_again = True

    async def _look(self) -> None:
        assert self._leg is not None
        try:
            current = await self._store.load(self.id)
        except StoreUnavailable:
            return  # The renewal will look again.
        if current is None or current.fence != self.fence:
            self.lose()
            return
        if current.final:
            return  # It has just ended here.
        if current.state == "stopping":
            self._leg.cancel()
        if answers := moves.unread(current, self._leg.seen):
            self._leg.deliver(answers)
        if self._look_again:
            self._look_again = False
            await self._look()

    def lose(self) -> None:
        """Another worker has the task, or it is over: what runs here counts for nothing."""
        if not self._lost:
            self._lost = True
            _log.warning("Task %s was taken over or has ended while it ran here", self.id)
            if self.task is not None:
                self.task.cancel()

    # What others should see meanwhile

    def _say(self, message: str) -> None:
        self._message = message
        self._tell()

    def _on_news(self) -> None:
        if self._leg is not None and self._leg.has_news:
            self._tell(at_once=True)

    def _tell(self, *, at_once: bool = False) -> None:
        if self._telling is not None and not self._telling.done():
            return
        delay = 0.0
        if not at_once:
            loop = asyncio.get_running_loop()
            delay = max(0.0, self._told_at + self._runner.limits.message_seconds - loop.time())
        self._telling = asyncio.create_task(self._publish(delay))

    async def _publish(self, delay: float) -> None:
        await asyncio.sleep(delay)
        while self._leg is not None:
            async with self._writing:
                self._told_at = asyncio.get_running_loop().time()
                leaves, batch = self._leg.leaves(message=self._message), self._journal.unsaved
                self._journal.unsaved = {}
                try:
                    await self._store.publish(self.id, self.fence, leaves, batch, now=self._runner.now())
                except (LostClaim, StoreUnavailable) as problem:
                    self._journal.unsaved = {**batch, **self._journal.unsaved}
                    _log.info("The news of task %s cannot be told: %s", self.id, problem)
                    return
                self._leg.left(leaves)
            if not self._leg.has_news:
                return

    def _quieten(self) -> None:
        """Nobody looks or tells any more; what is being written right now is written to its end."""
        if self._looking is not None:
            self._looking.cancel()
        if self._telling is not None and not self._writing.locked():
            self._telling.cancel()


def ending_of(outcome: Outcome) -> Ending:
    """An outcome as the row keeps it."""
    if isinstance(outcome, Complete):
        try:
            return Ending(result=encode(outcome.as_dict()))
        except UNSPEAKABLE:
            _log.exception("A task's result cannot be kept")
            return Ending(error=_spell_error(InternalError("The result cannot be sent as JSON")))
    if isinstance(outcome, Failed):
        return Ending(error=_spell_error(outcome.error))
    raise TypeError(f"a task cannot end with {type(outcome).__name__}")


def _spell_error(error: ProtocolError) -> bytes:
    spelled: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        spelled["data"] = error.data
    return encode(spelled)
