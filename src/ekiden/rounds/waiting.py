"""Waiting for an effect: who waits, what becomes of a cancellation, and what has not come up again.

An effect waits for its turn (`turns`). If the handler does not want to wait any longer, because a timeout
fires or a sibling fails, the effect is cut short, and that is remembered. A replay cuts what was cut, and
nothing else: a cancellation that comes sooner than at first is kept until the task comes to something new.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ekiden.rounds.journal import LEFT_BEHIND, UNKNOWN_BRANCH, Entry
from ekiden.rounds.performing import Performing, current_task
from ekiden.rounds.running import Step
from ekiden.rounds.turns import Turns, Waiter

__all__ = ["CUT", "Waiting"]

CUT: Final = object()
"""What an effect is told that its handler cut short before: nothing."""

_AFTERWARDS: Final = -1
"""The branch of steps that are run when the handler has returned."""


class Waiting(Performing, kw_only=True):
    """The effects that a handler waits for, and its branches."""

    _winding_up: bool = False

    async def _turn(
        self,
        name: str,
        digest: str,
        begin: Callable[[int], None] | None,
        value: Any = None,
        step: Step | None = None,
    ) -> Any:
        """Wait until this effect is told its value. If the handler cuts it short, that is remembered."""
        turns = self._my_turns()
        waiter = turns.wait(name, self._branch_of(name), begin, value)
        # No local variable holds the task: what it raises leads to this frame.
        undelivered, why = self._cancellations_due(turns) if turns.undelivered else (0, ())
        waiter.cancels = current_task().cancelling() - undelivered
        if self._held:
            self._look_at_held()
        if undelivered and (value is CUT or not self._has_value(waiter)):
            # A replay has kept a cancellation from it so far. From here on it counts.
            waiter.future.cancel(*why)
        while True:
            try:
                told = await waiter.future
            except asyncio.CancelledError as error:
                waiter.why = error.args
                self._hear(waiter)
                if self._over:
                    raise
                if waiter.is_told and waiter.is_known:
                    self._keep_cancellation(waiter)
                    return waiter.value
                if not self._comes_too_early(waiter):
                    turns.undelivered.pop(current_task(), None)
                    self._cut(waiter, digest, step)
                    raise
                waiter.future = self._loop.create_future()
            else:
                self._hear(waiter)
                return told

    def _hear(self, waiter: Waiter) -> None:
        if self._turns is not None and self._turns.unheard == waiter.name:
            self._turns.unheard = ""

    def _cancellations_due(self, turns: Turns) -> tuple[int, tuple[Any, ...]]:
        """Cancellations that were kept from this task, and whose scopes have not ended meanwhile."""
        kept, why = turns.undelivered.pop(current_task(), (0, ()))
        due = min(kept, current_task().cancelling())
        if due:
            turns.undelivered[current_task()] = (due, why)
        return due, why

    def _has_value(self, waiter: Waiter) -> bool:
        """Whether what this effect will be told is known, and only its turn has not come."""
        if waiter.is_known:
            return True
        return waiter.begin is not None and waiter.name[:2] == "a:" and waiter.name[2:] in self.responses

    def _keep_cancellation(self, waiter: Waiter) -> None:
        self._is_suspect = True
        kept = current_task().cancelling() - waiter.cancels
        self._my_turns().undelivered[current_task()] = (kept, waiter.why)

    def _comes_too_early(self, waiter: Waiter) -> bool:
        """Whether a replay cuts an effect that was not cut at first, or not yet: its timer ran ahead.

        A replay waits where the first run did not: for its turn, and for scopes of other branches.
        """
        if not self._has_value(waiter):
            return False
        entry = self.journal.entries.get(waiter.name)
        if entry is None or entry.kind != "cut":
            self._keep_cancellation(waiter)
            return True
        cancels: int = entry.value[1]
        if current_task().cancelling() - waiter.cancels < cancels:
            return True  # An outer scope fired, too, and is late.
        waiter.is_cancelled = True
        return not self._my_turns().is_next(waiter.name)

    def _cut(self, waiter: Waiter, digest: str, step: Step | None) -> None:
        """The handler does not wait any more: it was cancelled by its timeout, a sibling, or itself."""
        name = waiter.name
        known = self.journal.entries.get(name)
        self._asks.pop(name[2:], None)
        self._pauses.pop(name, None)
        self._my_turns().drop(name)
        if known is None or known.kind != "cut" or known.digest != digest:
            turns = self._my_turns()
            value = [
                self._loop.time() - self._began,
                current_task().cancelling() - waiter.cancels,
                waiter.after,
                turns.told_while(waiter),
            ]
            about = "" if step is None else step.about
            self._remember(name, Entry("cut", digest, value, waiter.branch, about))
            # All this the handler hears of later than of the cut.
            self.journal.move_to_the_end([turns.unheard, *self.journal.backlog, *turns.untold()])
        self._cut_step(waiter)

    # Branches, and what has not come up

    def _find(self, name: str) -> Entry | None:
        """The entry of an effect that has come up; one that was written between two legs has a branch now."""
        entry = self.journal.find(name)
        if entry is not None and entry.branch == UNKNOWN_BRANCH:
            entry.branch = self._branch_of(name)
        return entry

    def _branch_of(self, name: str) -> int:
        """Which of the handler's tasks this is: the one that did the first thing which it does again, too."""
        if self._stretch.alone or (task := asyncio.current_task()) is self._main:
            return _AFTERWARDS if self._winding_up else 0
        if self._winding_up:
            return LEFT_BEHIND
        branches = self._my_turns().branches
        branch = branches.get(task, UNKNOWN_BRANCH)
        if branch == UNKNOWN_BRANCH:
            entry = self.journal.entries.get(name)
            branch = self._next_branch() if entry is None else entry.branch
            branches[task] = branch
        return branch

    def _missing(self) -> Iterator[str]:
        """What earlier legs did, and has not come up in this one, as far as a new step could stand for it.

        That is a step. Where a replay has kept a cancellation from the handler, it is anything at all:
        a scope or a `gather` that knows of the cancellation may have taken the handler another way.
        """
        for step in self.journal.missing_steps():
            if self.journal.entries[step].branch != LEFT_BEHIND:  # Nobody waited for those even then.
                yield step
        if self._is_suspect:
            waiting, seen = self._my_turns().waiting, self.journal.seen
            for name in (*self.journal.backlog, *(f"a:{key}" for key in self._open_questions())):
                if name not in seen and name not in waiting:
                    yield name

    def _open_questions(self) -> Iterable[str]:
        """The questions that the last leg ended with."""
        return self.asked or ()

    def _next_branch(self) -> int:
        known = [entry.branch for entry in self.journal.entries.values()]
        return 1 + max((0, *known, *self._my_turns().branches.values()))

    def _leave(self, turns: Turns) -> None:
        if self._holding is not None:
            self._holding.cancel()
        for task in turns.branches:
            if task is not None and not task.done():
                task.cancel()  # Nobody waits for it, and its handler has ended.
        turns.branches.clear()
        turns.undelivered.clear()
