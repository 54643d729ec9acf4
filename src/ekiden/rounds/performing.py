"""Steps and sleeps: from where they may begin to their end, and into the memory.

A step begins when the journal allows it (`accounting`), when the round is ours, and when the steps that were
cut short before it have ended. It ends by itself: nothing but its handler cuts it short, and
its result is recorded even if its leg is over by then. Only what is recorded reaches the handler.
"""

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, Final

from ekiden.private_struct import PrivateStruct
from ekiden.rounds.accounting import NewStep
from ekiden.rounds.handler_task import OVER, HandlerTask
from ekiden.rounds.interpreter import Step, Watcher
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.ledger import RoundMemory
from ekiden.rounds.waiting import Waiting, current_task
from ekiden.signals import Restart

__all__ = ["Steps", "current_memory", "current_step", "raised"]

_SOON: Final = 0.001
"""Seconds. Clocks are not more exact than that: a shorter wait counts as over."""

current_step: ContextVar[str | None] = ContextVar("current_step", default=None)
"""The key of the step that the current task runs."""

current_memory: ContextVar[RoundMemory | None] = ContextVar("current_memory", default=None)
"""Where that step finds out whether it may still begin."""


class Performance(PrivateStruct):
    """A step whose function runs right now."""

    task: asyncio.Task[Any]
    unwound: asyncio.Future[None] | None = None
    """Set if it was cut short; done when it has ended."""


class Steps(PrivateStruct, kw_only=True):
    """The steps and sleeps of one leg. Made when the first of them is to begin."""

    task: HandlerTask
    journal: Journal
    waiting: Waiting
    flow: str
    """The call of which this is a leg."""
    memory: RoundMemory | None
    record: Callable[[str, Entry], None]
    """Adds an entry to the journal."""
    freshen: Callable[[], None]
    """Called when a new step begins: the handler is beyond what earlier legs did."""
    clock: Callable[[], float]
    pauses: dict[str, float | None] | None
    """Where a task's leg notes until when it waits. None in a round: it waits in this process."""
    saving: asyncio.Lock
    """Held while entries are saved, so that they are saved in order."""
    watcher: Watcher | None = None
    """Whoever is told that a step begins."""
    _running: dict[str, Performance] = {}

    # Beginning

    def begin(self, step: Step, name: str, context: Context, branch: int) -> None:
        """Begin a new step as soon as it may begin. One that has failed before may have to wait."""
        journal, start = self.journal, partial(self._start, step, name, context, branch)
        new = NewStep(name, step, branch, start)
        if self.pauses is not None and journal.unseen and (failed := journal.find(_tries(name))) is not None:
            journal.backlog.pop(_tries(name), None)
            if failed.value[1] - self.clock() >= _SOON:
                self._try_at(failed.value[1], new)
                return
        self.waiting.accounting.admit(new)

    def _start(self, step: Step, name: str, context: Context, branch: int) -> None:
        self.freshen()
        self.task.run_beside(self._perform(step, name, branch), context)

    async def _may_begin(self, name: str) -> bool:
        """Claim the round, and wait for steps that are being cut short: these two must not overlap."""
        task, waited = self.task, False
        if self.memory is not None:
            known = await self.memory.recall()
            if known and not self.journal.agrees_with(known):
                task.fail(Restart(known))
            unsaved = self.journal.unsaved
            is_unsaved = unsaved and any(entry.kind != "answer" for entry in unsaved.values())
            if (is_unsaved or self.saving.locked()) and task.phase not in OVER:
                waited = True
                await self.save()  # What led here, draws above all: a new owner comes to the same step.
        running = self._running.values()
        if running and (unwinding := {each.unwound for each in running if each.unwound is not None}):
            waited = True
            await asyncio.wait(unwinding)
        if waited and self.memory is not None and task.phase not in OVER:
            await self.memory.recall()  # The claim may have run out meanwhile.
        entry = self.journal.entries.get(name)
        return task.phase not in OVER and (entry is None or entry.kind != "cut")

    def cut(self, name: str) -> None:
        """The handler does not wait for a step any more. If its function runs, it is cancelled."""
        self.waiting.accounting.drop(name)
        if self.pauses is not None:
            self.pauses.pop(_tries(name), None)
        if (performance := self._running.get(name)) is not None:
            performance.unwound = self.task.loop.create_future()
            performance.task.cancel()

    # Sleeping

    def begin_sleep(self, name: str, until: float, branch: int) -> None:
        """A sleep needs the claim on its round, as a step does: a late copy of the round would sleep less."""
        if self.pauses is not None:
            self.pauses[name] = until
        if self.watcher is not None:
            self.watcher.began(name, "sleep")
        if self.memory is None:
            self._set_alarm(name, until, branch)
        else:
            self.task.run_beside(self._sleep_as_owner(name, until, branch))

    async def _sleep_as_owner(self, name: str, until: float, branch: int) -> None:
        if await self._may_begin(name):
            self._set_alarm(name, until, branch)

    def _set_alarm(self, name: str, until: float, branch: int) -> None:
        remaining = until - self.clock()
        if remaining < _SOON:
            self._awake(name, branch)
        else:
            alarm = self.task.loop.call_later(remaining, self._awake, name, branch)
            self.waiting.turns.alarms[name] = alarm

    def _awake(self, name: str, branch: int) -> None:
        turns = self.waiting.turns
        turns.alarms.pop(name, None)
        if self.pauses is not None:
            self.pauses.pop(name, None)
        if self.task.phase not in OVER and name in turns.waiting:
            self.record(name, Entry("slept", "", None, branch))
            turns.arrive(name, None)

    # Running

    async def _perform(self, step: Step, name: str, branch: int) -> None:
        """Run a step to its end and record it, whatever becomes of the leg meanwhile."""
        if not await self._may_begin(name):
            return
        current_step.set(f"{self.flow}:{name[2:]}")
        current_memory.set(self.memory)
        if self.watcher is not None:
            self.watcher.began(name, step.about)
        self._running[name] = Performance(current_task())  # No local variable: see `Waiting.turn`.
        try:
            entry = await self._ended(step, name)
        except GeneratorExit as error:
            entry = step.failure(raised(error, self._running[name].task))
        finally:
            unwound = self._running.pop(name).unwound
            if unwound is not None:
                unwound.set_result(None)
        if entry is not None and unwound is None:
            entry.branch = branch
            await self.finish(name, entry)
        else:
            await self.save()  # That it was cut is its record, whatever its function made of it.
        # A thread cannot be cut, and a function may not let itself be: it ends, and its value is dropped.
        late = await step.late() or (None if unwound is None else entry)
        if late is not None and late.kind == "step" and self.journal.is_last:
            self.record(name, late)  # But it was done, and whoever cleans up has to know.
            await self.save()

    async def _ended(self, step: Step, name: str) -> Entry | None:
        """How a step ended; None if it is tried again later. To cancel its task ends only its function."""
        entry: Entry | None
        try:
            if step.retry is None:
                entry, _ = await step.attempt()
            elif self.pauses is None:
                entry = await step.perform()  # It waits here between its tries.
            else:
                entry = await self._attempt(step, name)
        except asyncio.CancelledError as error:
            entry = step.failure(error)  # Unless it was cut.
        task = self._running[name].task
        while task.cancelling():
            task.uncancel()
            with contextlib.suppress(asyncio.CancelledError):  # One that has not come yet comes now.
                await asyncio.sleep(0)
        return entry

    # Recording

    async def finish(self, name: str, entry: Entry) -> None:
        """Record an effect that has just ended, have it saved, and tell the handler then."""
        self.record(name, entry)
        if self.task.phase in OVER:
            await self.save()
            return
        turns = self.waiting.turns
        arrival = turns.arrive(name, entry, ready=self.memory is None)
        if self.memory is not None:
            await self.save()
            arrival.ready = True
            turns.go_on()
            if self.journal.entries[name] is not entry:
                await self.save()  # It was cut in the last moment.

    async def save(self) -> None:
        """Have the memory keep all that it does not know yet, in order."""
        if self.memory is not None:
            async with self.saving:
                if self.journal.unsaved:
                    await self.memory.commit(self.journal.save())

    # Trying again, in a task: the time is in its row

    async def _attempt(self, step: Step, name: str) -> Entry | None:
        assert step.retry is not None
        entry, again = await step.attempt()
        known = self.journal.entries.get(_tries(name))
        failures = 1 if known is None else known.value[0] + 1
        if not again or failures >= step.retry.attempts:
            return entry
        if self.watcher is not None:
            self.watcher.retried(name, entry)
        until = self.clock() + step.retry.delay(failures)
        if self._running[name].unwound is None:
            self.record(_tries(name), Entry("again", step.digest, [failures, until]))
            if self.task.phase not in OVER:
                branch = self.waiting.turns.waiting[name].branch
                start = partial(self._start, step, name, copy_context(), branch)
                self._try_at(until, NewStep(name, step, branch, start))
        return None

    def _try_at(self, until: float, new: NewStep) -> None:
        assert self.pauses is not None
        tries = _tries(new.name)
        self.pauses[tries] = until
        alarm = self.task.loop.call_later(max(0.0, until - self.clock()), self._try_again, new)
        self.waiting.turns.alarms[tries] = alarm

    def _try_again(self, new: NewStep) -> None:
        assert self.pauses is not None
        self.waiting.turns.alarms.pop(_tries(new.name), None)
        if self.task.phase not in OVER and self.pauses.pop(_tries(new.name), None) is not None:
            self.waiting.accounting.admit(new)


def _tries(name: str) -> str:
    """Where the journal counts how often a step has failed."""
    return f"r:{name[2:]}"


def raised(error: GeneratorExit, task: asyncio.Task[Any]) -> GeneratorExit:
    """What a task's function raised. If the task was thrown away with its loop, nothing was: it ends."""
    try:
        is_running = asyncio.current_task() is task
    except RuntimeError:  # No loop runs at all.
        is_running = False
    if not is_running:
        raise error
    return error
