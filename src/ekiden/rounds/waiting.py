"""Waiting for an effect: who waits, and what becomes of a cancellation.

An effect waits for its turn (`turns`). If the handler does not want to wait any longer, because a timeout
fires or a sibling fails, the effect is cut short, and that is recorded. A replay cuts what was cut, and
nothing else: a cancellation that comes sooner than at first is kept until the task comes to something new.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ekiden.private_struct import PrivateStruct
from ekiden.rounds.accounting import Accounting
from ekiden.rounds.handler_task import OVER, HandlerTask
from ekiden.rounds.interpreter import Step
from ekiden.rounds.journal import UNKNOWN_BRANCH, Entry, Journal
from ekiden.rounds.turns import Turns, Waiter

__all__ = ["CUT", "Waiting", "current_task"]

current_task: Final = cast("Callable[[], asyncio.Task[Any]]", asyncio.current_task)
"""The task that runs this, for type checkers: an effect is always in one."""

CUT: Final = object()
"""The value of an effect that its handler cut short before: it has none."""


class Waiting(PrivateStruct):
    """The effects that a handler and its branches wait for. Made when the first of them has to wait."""

    _task: HandlerTask
    _journal: Journal
    turns: Turns
    accounting: Accounting
    _responses: Mapping[str, Any]
    """The answers that came with the request, by key."""
    _record: Callable[[str, Entry], None]
    _on_cut: Callable[[str], None]
    """Called with the name of an effect that the handler cuts short."""

    async def turn(
        self,
        name: str,
        branch: int,
        digest: str,
        begin: Callable[[int], None] | None,
        value: Any = None,
        step: Step | None = None,
    ) -> Any:
        """Wait until it is the turn of this effect; its value. If the handler cuts it short, that is noted.

        `begin` is what is to be done for a new effect, once the journal has nothing more to tell. Without
        it the journal knows the effect, and `value` is its value.
        """
        turns = self.turns
        waiter = turns.wait(name, branch, begin, value)
        # No local variable holds the task: what it raises leads to this frame.
        undelivered, why = self._cancellations_due() if turns.undelivered else (0, ())
        waiter.cancels = current_task().cancelling() - undelivered
        if self.accounting.held:
            self.accounting.came_up()
        if undelivered and (value is CUT or not self._has_value(waiter)):
            # A replay has kept a cancellation from it so far. From here on it counts.
            waiter.future.cancel(*why)
        while True:
            try:
                told = await waiter.future
            except asyncio.CancelledError as error:
                waiter.why = error.args
                self._hear(waiter)
                if self._task.phase in OVER:
                    raise
                if waiter.is_told and waiter.is_known:
                    self._keep_cancellation(waiter)
                    return waiter.value
                if not self._comes_too_early(waiter):
                    turns.undelivered.pop(current_task(), None)
                    self._cut(waiter, digest, step)
                    raise
                waiter.future = self._task.loop.create_future()
            else:
                self._hear(waiter)
                return told

    def branch_of(self, task: asyncio.Task[Any] | None, name: str) -> int:
        """The number of a branch: that of the task which did its first effect before, or a new one."""
        branches = self.turns.branches
        branch = branches.get(task, UNKNOWN_BRANCH)
        if branch == UNKNOWN_BRANCH:
            entries = self._journal.entries
            if (entry := entries.get(name)) is not None:
                branch = entry.branch
            else:
                branch = 1 + max((0, *(e.branch for e in entries.values()), *branches.values()))
            branches[task] = branch
        return branch

    def _hear(self, waiter: Waiter) -> None:
        if self.turns.unheard == waiter.name:
            self.turns.unheard = ""

    def _cancellations_due(self) -> tuple[int, tuple[Any, ...]]:
        """Cancellations that were kept from this task, and whose scopes have not ended meanwhile."""
        kept, why = self.turns.undelivered.pop(current_task(), (0, ()))
        due = min(kept, current_task().cancelling())
        if due:
            self.turns.undelivered[current_task()] = (due, why)
        return due, why

    def _has_value(self, waiter: Waiter) -> bool:
        """Whether what this effect will be told is known, and only its turn has not come."""
        if waiter.is_known:
            return True
        return waiter.begin is not None and waiter.name[:2] == "a:" and waiter.name[2:] in self._responses

    def _keep_cancellation(self, waiter: Waiter) -> None:
        self.accounting.is_suspect = True
        kept = current_task().cancelling() - waiter.cancels
        self.turns.undelivered[current_task()] = (kept, waiter.why)

    def _comes_too_early(self, waiter: Waiter) -> bool:
        """Whether a replay cuts an effect that was not cut at first, or not yet: its timer ran ahead.

        A replay waits where the first run did not: for its turn, and for scopes of other branches.
        """
        if not self._has_value(waiter):
            return False
        entry = self._journal.entries.get(waiter.name)
        if entry is None or entry.kind != "cut":
            self._keep_cancellation(waiter)
            return True
        cancels: int = entry.value[1]
        if current_task().cancelling() - waiter.cancels < cancels:
            return True  # An outer scope fired, too, and is late.
        waiter.is_cancelled = True
        return not self.turns.is_next(waiter.name)

    def _cut(self, waiter: Waiter, digest: str, step: Step | None) -> None:
        """The handler does not wait any more: it was cancelled by its timeout, a sibling, or itself."""
        name, turns = waiter.name, self.turns
        known = self._journal.entries.get(name)
        self._on_cut(name)
        turns.drop(name)
        if known is not None and self._journal.is_last:
            return
        if known is None or known.kind != "cut" or known.digest != digest:
            value = [
                self._task.loop.time() - self._task.began,
                current_task().cancelling() - waiter.cancels,
                waiter.after,
                turns.told_while(waiter),
            ]
            about = "" if step is None else step.about
            self._record(name, Entry("cut", digest, value, waiter.branch, about))
            # All this the handler is told later than the cut.
            self._journal.move_to_the_end([turns.unheard, *self._journal.backlog, *turns.untold()])
