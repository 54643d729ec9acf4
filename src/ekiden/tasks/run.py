"""One task while this process holds it: its leg, its commits, and what others see and do meanwhile."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from ekiden.errors import InternalError, LostClaim, StoreRefused, StoreUnavailable
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.leg import Suspended
from ekiden.rounds.outcome import Failed, Outcome
from ekiden.signals import Ended, TaskCancelled
from ekiden.tasks import moves
from ekiden.tasks.leases.renewing import Asked, answer_of
from ekiden.tasks.leg import TaskLeg
from ekiden.tasks.moves import Ending, Suspension
from ekiden.tasks.outcomes import EXPIRED, WHY_EXPIRED, ending_of, failed, spell_error
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.states import FINAL, State
from ekiden.tasks.store import Held
from ekiden.tasks.work import Why, Work, Worker, to_its_end

__all__ = ["Run"]

_log = logging.getLogger(__name__)

_TOLD_TO_STOP: Final[tuple[State, ...]] = ("stopping", "failing")
"""States in which a handler that runs is cancelled: its client wants it, or the time of its task is over."""


class Run:
    """One task while this process holds it. Implements `ekiden.rounds.ledger.RoundMemory` for its leg."""

    def __init__(self, worker: Worker, held: Held, asked: Asked) -> None:
        self._worker = worker
        self._store = worker.store
        self._held = held
        self.asked = asked
        """When our lease was asked for."""
        self._known = held.record
        """The row as this process has read or changed it last."""
        self.began = asked.loop
        """By the clock of the event loop."""
        self.losses = held.record.losses
        """The workers that it has lost in a row without any progress."""
        self.id = held.record.id
        self.tool = held.record.tool
        self.fence = held.fence
        self.task: asyncio.Task[None] | None = None
        self._leg: TaskLeg | None = None
        self._work: Work | None = None
        self._journal = Journal.of(held.entries)
        self._lost = False
        self._look_again = False
        self._looking: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._message: str | None = None
        self._told: str | None = None
        self._told_at = float("-inf")
        self._urgent = asyncio.Event()
        self._quiet = False
        self.is_ending = False
        """Whether its leg has ended, and only the end is to be committed."""

    # Running

    async def perform(self) -> None:
        """Run the task to the end of a leg."""
        record, worker = self._held.record, self._worker
        work = worker.find(record)
        if work is None:
            _log.warning("Task %s wants tool %r, which is not here; put back", self.id, record.tool)
            await self._store.release(
                self.id, self.fence, now=worker.now(), after=worker.limits.sweep_seconds
            )
            self._moved("queued")
        elif record.state in ("tidying", "failing"):
            await self._tidy(work)
        elif record.expires is not None and record.expires <= worker.now():
            await self._expire(work)
        elif record.losses >= worker.limits.attempts:
            await self._give_up(work, "The task was given up: its workers were lost too often")
        else:
            await self._run_leg(work)

    async def _run_leg(self, work: Work) -> None:
        leg = self._leg = TaskLeg.of(
            work.title,
            self._held,
            self._journal,
            capabilities=work.capabilities,
            clock=self._worker.now,
            memory=self,
            on_news=self._on_news,
            is_paged=work.is_paged,
        )
        self._work = work
        if self._look_again:
            self.look_soon()
        try:
            await self.recall()  # The claim may have been heard of so late that another worker has the task.
            ended = await work.run(leg, self._say)
        except TaskCancelled:
            await self._stop(work)
            return
        except Ended:
            raise LostClaim(f"task {self.id} was lost in the middle of a leg") from None
        finally:
            self._quieten()
        await self._end(leg, ended, work)

    async def _end(self, leg: TaskLeg, ended: Outcome | Suspended, work: Work) -> None:
        self.is_ending = True
        self._worker.made_room()
        async with leg.saving:
            unsaved = self._journal.save()
            try:
                if isinstance(ended, Suspended):
                    await self._rest(leg, ended, work, unsaved)
                else:
                    await self._finish(ended, unsaved)
            except LostClaim:
                # It was to stop at the moment when its leg came to its end: there is no handler to tell. If
                # it was lost instead, this says so.
                await self._stop(work)
            except asyncio.CancelledError:
                self._journal.unsaved = unsaved  # The process ends: it is handed over with the task.
                raise

    async def _rest(self, leg: TaskLeg, ended: Suspended, work: Work, unsaved: Mapping[str, Entry]) -> None:
        now, leaves = self._worker.now(), leg.leaves(ended, self._message)
        if work.is_paged is not None:
            await self._worker.insist(lambda: work.put(leaves.asked, leaves.withdrawn))
        await self._worker.insist(
            lambda: self._store.suspend(self.id, self.fence, leaves, unsaved, now=now, known=self._known)
        )
        self._moved("waiting", leaves)

    async def _finish(self, ended: Outcome, unsaved: Mapping[str, Entry]) -> None:
        now, ending = self._worker.now(), ending_of(ended, self._worker.result_bytes)

        async def finish(with_this: Ending) -> None:
            record = await self._store.finish(
                self.id,
                self.fence,
                with_this,
                unsaved,
                now=now,
                message=self._diagnosis(with_this),
                known=self._known,
            )
            self._moved(record.state)

        try:
            await self._worker.insist(lambda: finish(ending))
        except StoreRefused as refused:
            _log.error("The result of task %s cannot be kept: %s", self.id, refused)
            error = InternalError(f"The result cannot be kept: {refused}")
            await self._worker.insist(lambda: finish(failed(error)))

    async def _expire(self, work: Work) -> None:
        """Nobody has found yet that the time of the task is over: its handler is not begun any more."""
        now = self._worker.now()
        await self._worker.insist(
            lambda: self._store.expire([self.id], EXPIRED, now=now, message=WHY_EXPIRED)
        )
        self._moved("failing")
        await self._stop(work)

    async def _give_up(self, work: Work, why: str) -> None:
        _log.error("Task %s: %s", self.id, why)
        error, now = spell_error(InternalError(why)), self._worker.now()
        lease = self._worker.limits.lease_seconds
        record = await self._worker.insist(
            lambda: self._store.give_up(
                self.id, self.fence, error, now=now, lease=lease, tidy=work.tidies, message=why
            )
        )
        self._moved(record.state)
        await self._tidy_unless_ended(work, record)

    def _diagnosis(self, ending: Ending) -> str | None:
        """The status message of a task that has ended: what went wrong, and how far it had come by then."""
        if ending.error is None or self._message is None:
            return ending.why
        return f"{ending.why}; before that: {self._message}"

    async def _stop(self, work: Work) -> None:
        """The handler was cancelled, or the time of the task is over, and what it was at has ended."""
        now, lease = self._worker.now(), self._worker.limits.lease_seconds
        record = await self._worker.insist(
            lambda: self._store.stop(self.id, self.fence, now=now, lease=lease, tidy=work.tidies)
        )
        if record.state != "failing":  # Whoever found that its time was over has told of that.
            self._moved(record.state)
        await self._tidy_unless_ended(work, record)

    async def _tidy_unless_ended(self, work: Work, record: TaskRecord) -> None:
        if record.state not in FINAL:
            self._known = record
            await self._tidy(work)

    async def _tidy(self, work: Work) -> None:
        if work.tidies and self._tidying_tries > self._worker.limits.attempts:
            _log.error("The clean-up of task %s was given up: its workers were lost too often", self.id)
        elif work.tidies:
            problem = await to_its_end(work.tidy(self._journal.entries, self._why), lambda: self._lost)
            if problem is not None:
                _log.error("The clean-up of task %s failed", self.id, exc_info=problem)
        record = await self._worker.insist(lambda: self._store.tidied(self.id, self.fence))
        self._moved(record.state)

    @property
    def _tidying_tries(self) -> int:
        record = self._held.record
        return record.losses if record.final else 0

    @property
    def _why(self) -> Why:
        if self._known.state != "failing":
            return "cancelled"
        return "expired" if self._known.expired else "given up"

    def _moved(self, state: State | None, leaves: Suspension | None = None) -> None:
        """Tell whoever measures that the task is in this state now, and what was asked again."""
        observer = self._worker.observer
        if state is not None:
            observer.moved(self.tool, state)
        if leaves is not None and (again := sum(question.attempt > 1 for question in leaves.asked)):
            observer.asked_again(self.tool, again)

    async def hand_over(self) -> None:
        """The process ends, or the claim is lost. A claim that is still ours goes to other workers now."""
        self._quieten()
        if self._lost:
            return
        async with contextlib.nullcontext() if self._leg is None else self._leg.saving:
            await self._release()

    async def _release(self) -> None:
        with contextlib.suppress(LostClaim, StoreUnavailable):
            if unsaved := self._journal.save():
                await self._store.append(self.id, self.fence, unsaved)
            await self._store.release(self.id, self.fence, now=self._worker.now())
            self._moved("queued")

    # What the leg commits

    async def recall(self) -> Mapping[str, Entry]:
        """Make sure that the task is ours; if in doubt, renew its lease. A task has only its journal."""
        leases = self._worker.leases
        while not (self._lost or leases.is_sure(self.asked)):
            await self._worker.insist(lambda: leases.renew({self.id: self.fence}))
        if self._lost:
            raise _taken_over()
        return {}

    def is_sure(self) -> bool:
        """Whether the task is certainly ours."""
        return not self._lost and self._worker.leases.is_sure(self.asked)

    async def commit(self, entries: Mapping[str, Entry]) -> None:
        """Commit a step as it ends, with what led to it."""
        if self._lost:
            raise _taken_over()
        state = await self._worker.insist(partial(self._store.append, self.id, self.fence, entries))
        if state is None:
            self._lost = True
            self._worker.beside(self._survive())
            raise _taken_over()
        if self.losses:
            self.losses = self._known.losses = 0
            self._worker.made_room()  # It had its last try alone, perhaps.
        if state in _TOLD_TO_STOP and self._leg is not None:
            self._leg.cancel(must_end=state == "failing")

    # What others do meanwhile

    def look_soon(self) -> None:
        """Something may have changed: look. Not after the leg has ended: that change was our own."""
        if self._quiet:
            return
        if self._leg is None:
            self._look_again = True
        elif self._looking is None or self._looking.done():
            self._look_again = False
            self._looking = self._worker.beside(self._look())
        else:
            self._look_again = True

    async def _look(self) -> None:
        leg = self._leg
        if leg is None:
            return  # It has ended before this look began.
        try:
            current = await self._store.load(self.id)
        except StoreUnavailable:
            return  # The renewal will look again.
        if self._quiet:
            return
        if current is None or current.fence != self.fence:
            self.lose()
            return
        if current.state in _TOLD_TO_STOP:
            leg.cancel(must_end=current.state == "failing")
        elif current.final:
            return  # It has just ended here.
        if answers := moves.unread(current, leg.seen):
            leg.deliver(answers)
        if self._look_again:
            self._look_again = False
            await self._look()

    def lose(self) -> None:
        """Another worker has the task, or it is over: end what runs here, without effect."""
        if not self._lost:
            self._lost = True
            _log.warning("Task %s was taken over or has ended while it ran here", self.id)
            self._worker.beside(self._survive())
            if self.task is not None:
                self.task.cancel()

    async def _survive(self) -> None:
        """Tell the store that this worker lives, so that the take-over does not count against the task."""
        with contextlib.suppress(StoreUnavailable, StoreRefused):
            await self._store.survive(self.id, self.fence)

    def abandon(self) -> None:
        """The process ends before a step has: that the step is cut off must not be recorded."""
        self._lost = True

    def forget(self) -> None:
        """Let go of the leg, which refers back to this: the garbage collector may come late."""
        self._leg = None

    # What others should see meanwhile

    def _say(self, message: str) -> None:
        self._message = message
        self._tell()

    def _on_news(self) -> None:
        if self._leg is not None and self._leg.has_news:
            self._urgent.set()
            self._tell()

    def _tell(self) -> None:
        if self._telling is None or self._telling.done():
            self._telling = self._worker.beside(self._publish())

    async def _publish(self) -> None:
        """Write until there is nothing left to write: questions at once, messages at most so often."""
        leg = self._leg
        while leg is not None and not self._quiet and (leg.has_news or self._message != self._told):
            if not leg.has_news:
                await self._turn()
            async with leg.saving:
                self._urgent.clear()
                self._told_at = asyncio.get_running_loop().time()
                leaves, batch = leg.leaves(message=self._message), self._journal.save()
                try:
                    if self._work is not None and self._work.is_paged is not None:
                        await self._work.put(leaves.asked, leaves.withdrawn)
                    publishing = self._store.publish(
                        self.id, self.fence, leaves, batch, now=self._worker.now(), known=self._known
                    )
                    self._known = await answer_of(publishing)
                except (LostClaim, StoreUnavailable, StoreRefused) as problem:
                    self._journal.unsaved = {**batch, **self._journal.unsaved}
                    _log.info("The news of task %s cannot be told: %s", self.id, problem)
                    return
                self._told = leaves.message
                leg.left(leaves)
                self._moved(None, leaves)

    async def _turn(self) -> None:
        """Wait until a message may be written again, or until there is more than a message."""
        wait = self._told_at + self._worker.limits.message_seconds - asyncio.get_running_loop().time()
        if wait > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._urgent.wait()

    def _quieten(self) -> None:
        """Read and write nothing more beside the leg. A statement that runs right now comes to its end.

        To cut it short would cost the database more.
        """
        self._quiet = True
        if self._telling is not None and (self._leg is None or not self._leg.saving.locked()):
            self._telling.cancel()


def _taken_over() -> Ended:
    return Ended(Failed(InternalError("The task was taken over by another worker")))
