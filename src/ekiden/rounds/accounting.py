"""If an earlier leg ran a step that this replay has not reached, no new step begins that might be that one.

A deploy may have renamed a step, or given it another argument: then the replay comes to what looks like a
new step, and to begin it would do the same thing twice. In the same branch of the handler that is certain,
and the call is refused at once. In another branch the old step may only be late, because that branch
does plain I/O: the new step is held back for a while.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ekiden.errors import NonDeterminismError
from ekiden.patience import Patience
from ekiden.private_struct import PrivateStruct
from ekiden.rounds.handler_task import HandlerTask
from ekiden.rounds.interpreter import Step
from ekiden.rounds.journal import LEFT_BEHIND, STEP, Journal
from ekiden.rounds.turns import Turns

__all__ = ["Accounting", "NewStep", "vanished"]

_HOLD_SECONDS: Final = 1.0
"""How long a new step waits for another branch to come to a step of the journal. It may be busy with I/O."""

_HOLDING: Final = "held steps"
"""The name of the timer for that."""


class NewStep(PrivateStruct):
    """A step that the journal does not know."""

    name: str
    step: Step
    branch: int
    begin: Callable[[], None]
    """Begins it, once it may begin."""


class Accounting(PrivateStruct):
    """What earlier legs did and has not come up in this one, and the new steps that wait for it."""

    _task: HandlerTask
    _journal: Journal
    _turns: Turns
    _open_questions: Callable[[], Iterable[str]]
    """The questions that the last leg ended with."""
    is_suspect: bool = False
    """Whether a replay has kept a cancellation from the handler. A scope or a `gather` that knows of the
    cancellation may have taken the handler another way: then all that is missing counts, not only steps."""
    held: tuple[NewStep, ...] = ()
    """New steps that wait until all of old has come up."""

    def admit(self, new: NewStep) -> None:
        """Begin a new step, hold it back, or refuse the call."""
        if not self._journal.backlog and not self.is_suspect:
            new.begin()  # All has come up: nothing can be missing.
            return
        old = self._journal.missing_step_of(new.branch) or self._given_up()
        if old is not None:
            self._refuse(old, new)
        elif next(self._missing(), None) is not None:
            self.held += (new,)
            if _HOLDING not in self._turns.alarms:
                alarm = Patience(self._task.loop, _HOLD_SECONDS, self._held_too_long)
                self._turns.alarms[_HOLDING] = alarm
        else:
            new.begin()

    def came_up(self) -> None:
        """An effect has come up: perhaps nothing is missing any more that a step is held for."""
        if next(self._missing(), None) is None:
            held, self.held = self.held, ()
            for new in held:
                self.admit(new)

    def drop(self, name: str) -> None:
        """The handler does not wait for a step any more."""
        if self.held:
            self.held = tuple(held for held in self.held if held.name != name)

    def _held_too_long(self) -> None:
        del self._turns.alarms[_HOLDING]
        missing = next(self._missing(), None)
        if self.held and missing is not None:
            self._refuse(missing, self.held[0])
        else:
            self.came_up()

    def _refuse(self, old: str, new: NewStep) -> None:
        now = f"it is about to do step {new.name[2:]!r} ({new.step.about})"
        self._task.fail(vanished(self._task.title, self._journal, old, now))

    def _given_up(self) -> str | None:
        """A step that another branch did before, and was waited for long enough."""
        given_up = self._turns.given_up
        return next((key for key in self._missing() if key in given_up), None)

    def _missing(self) -> Iterator[str]:
        for step in self._journal.missing_steps():
            if self._journal.entries[step].branch != LEFT_BEHIND:  # The handler did not wait for those.
                yield step
        if self.is_suspect:
            waiting, journal = self._turns.waiting, self._journal
            for name in (*self._journal.backlog, *(f"a:{key}" for key in self._open_questions())):
                has_come_up = name in journal.entries and name not in journal.unseen
                if not has_come_up and name not in waiting:
                    yield name


def vanished(handler: str, journal: Journal, key: str, now: str) -> NonDeterminismError:
    """The error of a handler that does `now` and has not come to what it did before."""
    entry = journal.entries.get(key)
    if key.startswith(STEP) and entry is not None:
        before = f"it did step {key[2:]!r} ({entry.about})"
    else:
        before = f"it did {key[2:]!r}, and no timeout fired around that"
    return NonDeterminismError(f"{handler} does not replay", before=before, now=now, effect=key[2:])
