"""Running a step: once it may begin, to its end, and into the memory.

A step begins when nothing in the journal speaks against it, when the round is ours, and when the steps that
were cut short before it have ended. It ends by itself: nothing but its handler cuts it short, and
what it gave is remembered even if its leg is over by then. Only what is remembered reaches the handler.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar
from typing import Any, Final

from ekiden.errors import Restart
from ekiden.opaque import Opaque
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import RoundMemory
from ekiden.rounds.running import Running, Step
from ekiden.rounds.turns import Waiter

__all__ = ["Performing", "current_memory", "current_step", "current_task", "raised"]

_HOLD_SECONDS: Final = 1.0
"""How long a new step waits for another branch to come to a step of the journal. It may be busy with I/O."""

current_step: ContextVar[str | None] = ContextVar("current_step", default=None)
"""The key of the step that the current task performs."""

current_memory: ContextVar[RoundMemory | None] = ContextVar("current_memory", default=None)
"""Who knows whether that step may still begin."""


class Performance(Opaque):
    """A step whose function runs right now."""

    task: asyncio.Task[Any]
    unwound: asyncio.Future[None] | None = None
    """Set if it was cut short; done when it has ended."""


class Performing(Running, kw_only=True):
    """The steps of one leg."""

    flow: str = ""
    """The call of which this is a leg."""
    memory: RoundMemory | None = None
    fresh: bool = True
    """Whether the handler is beyond what earlier legs did. Before that, its progress is no news."""
    on_fresh: Callable[[str, float], None] | None = None
    """Told of the handler, and after how many seconds it was beyond that."""
    _began: float = 0.0
    _held: tuple[tuple[Step, str, Context, int], ...] = ()
    """New steps that wait for other branches to come to what they did before."""
    _holding: asyncio.TimerHandle | None = None
    _performing: dict[str, Performance] = {}
    _saving: asyncio.Lock | None = None
    _is_suspect: bool = False
    """Whether a replay has kept a cancellation from the handler."""

    def _begin_step(self, step: Step, name: str, context: Context, branch: int) -> None:
        """Begin a new step, unless it could stand for one that the journal knows and that has not come up."""
        old = self._changed(branch) or self._given_up()
        if old is not None:
            self._break(self._vanished(old, f"it is about to do step {name[2:]!r} ({step.about})"))
        elif next(self._missing(), None) is not None:
            self._held += ((step, name, context, branch),)
            if self._holding is None:
                self._holding = self._loop.call_later(_HOLD_SECONDS, self._held_too_long)
        else:
            if not self.fresh:
                self._freshen()
            self._run_beside(self._perform(step, name, branch), context)

    def _given_up(self) -> str | None:
        """A step that another branch did before, and was waited for long enough."""
        given_up = self._my_turns().given_up
        return next((key for key in self._missing() if key in given_up), None)

    def _missing(self) -> Iterator[str]:
        """What earlier legs did, and has not come up in this one, as far as a new step could stand for it."""
        return self.journal.missing_steps()

    def _changed(self, branch: int) -> str | None:
        """A step that this branch did before and has not come to, although it is to do a new one."""
        missing = self.journal.missing_steps()
        return next((key for key in missing if self.journal.entries[key].branch == branch), None)

    def _run_beside(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> None:
        """Run what the leg must not end before, with the context variables of whoever asked for it."""
        task = self._loop.create_task(work, context=context)
        self._steps.add(task)
        task.add_done_callback(self._step_done)

    def _look_at_held(self) -> None:
        if next(self._missing(), None) is None:
            held, self._held = self._held, ()
            for each in held:
                self._begin_step(*each)

    def _held_too_long(self) -> None:
        self._holding = None
        missing = next(self._missing(), None)
        if self._held and missing is not None and not self._over:
            step, name, *_ = self._held[0]
            self._break(self._vanished(missing, f"it is about to do step {name[2:]!r} ({step.about})"))
        elif self._held and not self._over:
            self._look_at_held()

    def _step_done(self, task: asyncio.Task[None]) -> None:
        self._steps.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._break(error)
        elif self._turns is not None:
            self._turns.go_on()

    async def _perform(self, step: Step, name: str, branch: int) -> None:
        """Run a step to its end and remember it, whatever becomes of the leg meanwhile."""
        if not await self._may_begin(name):
            return
        current_step.set(f"{self.flow}:{name[2:]}")
        current_memory.set(self.memory)
        self._performing[name] = Performance(current_task())  # No local variable: see `_turn`.
        try:
            entry = await self._ended(step, name)
        except GeneratorExit as error:
            entry = step.failure(raised(error, self._performing[name].task))
        finally:
            unwound = self._performing.pop(name).unwound
            if unwound is not None:
                unwound.set_result(None)
        if entry is not None and unwound is None:
            entry.branch = branch
            await self._record(name, entry)
        else:
            await self._save()  # That it was cut is its record, whatever its function made of it.
        if step.running is not None:
            await asyncio.wait({step.running})  # A thread cannot be cut: it ends, and its value is dropped.

    async def _ended(self, step: Step, name: str) -> Entry | None:
        """How a step ended. If somebody has cancelled its task, that ends no more than its function."""
        try:
            entry = await self._performed(step, name)
        except asyncio.CancelledError as error:
            entry = step.failure(error)  # Unless it was cut.
        task = current_task()
        while task.cancelling():
            task.uncancel()
            with contextlib.suppress(asyncio.CancelledError):  # One that has not come yet comes now.
                await asyncio.sleep(0)
        return entry

    async def _record(self, name: str, entry: Entry) -> None:
        self._remember(name, entry)
        if self._turns is None or self._over:
            await self._save()
            return
        arrival = self._turns.arrive(name, entry, ready=self.memory is None)
        if self.memory is not None:
            await self._save()
            arrival.ready = True
            self._turns.go_on()
            if self.journal.entries[name] is not entry:
                await self._save()  # It was cut in the last moment.

    async def _performed(self, step: Step, name: str) -> Entry | None:
        return await step.perform()

    async def _may_begin(self, name: str) -> bool:
        """Claim the round, and wait for steps that are being cut short: these two must not overlap."""
        waited = False
        if self.memory is not None:
            known = await self.memory.recall()
            if not known.keys() <= self.journal.entries.keys():
                self._break(Restart(known))
            if not self._over and any(e.kind != "answer" for e in self.journal.unsaved.values()):
                waited = True
                await self._save()  # What led here, draws above all: whoever takes over has the same step.
        if unwinding := {each.unwound for each in self._performing.values() if each.unwound is not None}:
            waited = True
            await asyncio.wait(unwinding)
        if waited and self.memory is not None and not self._over:
            await self.memory.recall()  # The claim may have run out meanwhile.
        entry = self.journal.entries.get(name)
        return not self._over and (entry is None or entry.kind != "cut")

    async def _save(self) -> None:
        """Have the memory remember all that it does not know yet, in order."""
        if self.memory is not None:
            async with self.saving:
                if self.journal.unsaved:
                    await self.memory.commit(self.journal.save())

    @property
    def saving(self) -> asyncio.Lock:
        """Held while entries are saved, so that they are saved in order."""
        if self._saving is None:
            self._saving = asyncio.Lock()
        return self._saving

    def _cut_step(self, waiter: Waiter) -> None:
        """The handler does not wait for a step any more. If its function runs, it is cancelled."""
        self._held = tuple(held for held in self._held if held[1] != waiter.name)
        if (performance := self._performing.get(waiter.name)) is not None:
            performance.unwound = self._loop.create_future()
            performance.task.cancel()

    def _remember(self, name: str, entry: Entry) -> None:
        if not self.fresh:
            self._freshen()
        self.journal.add(name, entry)

    def _freshen(self) -> None:
        """The handler is beyond what earlier legs did."""
        self.fresh = True
        if self.on_fresh is not None:
            self.on_fresh(self.handler, self._loop.time() - self._began)


def raised(error: GeneratorExit, task: asyncio.Task[Any]) -> GeneratorExit:
    """What a task's function raised. If the task was thrown away with its loop, nothing was: it ends."""
    try:
        is_running = asyncio.current_task() is task
    except RuntimeError:  # No loop runs at all.
        is_running = False
    if not is_running:
        raise error
    return error


def current_task() -> asyncio.Task[Any]:
    """The task that runs this."""
    task = asyncio.current_task()
    assert task is not None
    return task
