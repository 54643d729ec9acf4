"""A handler in a task: one run of it over the stored journal.

It has a `Leg`, as a round has. What differs: a question is put as soon as it is clear that the leg goes on
without its answer (`questions`), and an answer that comes meanwhile is delivered; a cancellation is the
client's wish, which the handler may clean up after, with effects too.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from ekiden.errors import InternalError
from ekiden.private_struct import PrivateStruct
from ekiden.rounds.asks import Ask
from ekiden.rounds.handler_task import HandlerTask
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.ledger import RoundMemory
from ekiden.rounds.leg import BACKGROUND, Leg
from ekiden.rounds.outcome import Failed, Suspended
from ekiden.rounds.replay import Replay
from ekiden.signals import TaskCancelled
from ekiden.tasks.moves import Suspension
from ekiden.tasks.questions import TaskQuestions
from ekiden.tasks.record import Question
from ekiden.tasks.store import Held

__all__ = ["BY_HAND", "TaskLeg"]

_CUT: Final = (Suspended, asyncio.CancelledError)
"""Why a leg ends whose task is to stop, unless the handler has come to its own end."""

BY_HAND: Final = "m:manual"
"""The journal's key for the state of a handler that asks with `InputRequired`, not with effects."""


class TaskLeg(PrivateStruct):
    """One run of a task's handler."""

    effects: Leg
    """What the handler's `Context` calls."""
    _questions: TaskQuestions
    saving: asyncio.Lock
    """Held while entries are saved, so that they are saved in order."""
    _is_cancelling: bool = False
    _must_end: asyncio.TimerHandle | None = None

    @classmethod
    def of(
        cls,
        handler: str,
        held: Held,
        journal: Journal,
        *,
        capabilities: Mapping[str, Any],
        clock: Callable[[], float],
        memory: RoundMemory,
        on_news: Callable[[], None],
        is_paged: Callable[[Ask], bool] | None = None,
    ) -> Self:
        """The next run of a task that is held."""
        standing = held.record.questions
        questions = TaskQuestions(
            handler=handler,
            capabilities=capabilities,
            on_news=on_news,
            is_paged=is_paged,
            current={question.name: question for question in standing.values()},
            attempts=dict(held.record.asked),
            seen={key for key, question in standing.items() if question.answered},
        )
        saving = asyncio.Lock()
        replay = Replay(
            HandlerTask(handler),
            journal,
            questions,
            clock,
            flow=held.record.flow,
            memory=memory,
            fresh=not held.entries or _waits_by_hand(journal),
            is_durable=True,
            saving=saving,
        )
        begins = not held.record.asked and next(reversed(journal.entries), None) == BACKGROUND
        frontier = (BACKGROUND,) if begins else ()
        # It is in the background already. Where it became a task by that, the journal knows.
        return cls(Leg(replay, frontier, can_background=BACKGROUND in journal.entries), questions, saving)

    @property
    def seen(self) -> set[str]:
        """Keys of the answers that this leg knows of."""
        return self._questions.seen

    # Running

    async def run(self, handler: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Run the handler: its value, what it raised, or `Suspended`; `TaskCancelled` if it was cut off."""
        replay, task = self.effects.replay, self.effects.replay.task
        task.start(self.effects.whole(handler, arguments))
        try:
            await task.settled()
        finally:
            if self._must_end is not None:
                self._must_end.cancel()
        if self._is_cancelling and task.task is not None:
            is_cut = task.task.cancelled() if task.ending is None else isinstance(task.ending, _CUT)
            if is_cut:
                task.end()
                raise TaskCancelled(Failed(InternalError("The task was cancelled")))
        return replay.conclude()

    def deliver(self, responses: Mapping[str, Any]) -> None:
        """Answers have come while it runs."""
        if self.effects.replay.is_over:
            return
        replay = self.effects.replay
        for wire_key, ask, key, branch in self._questions.answered(responses):
            if replay.is_over:
                return
            replay.asks.pop(wire_key, None)
            self.effects.begin_ask(ask, f"a:{key}", branch)
            if key in self._questions.current:  # It did not fit, and is asked for again.
                replay.waits().turns.stir()

    def cancel(self, *, must_end: bool = False) -> None:
        """The task is to stop: the handler is cancelled, as any coroutine is.

        It may go on all the same, and its task may complete; if it `must_end`, it is given a few seconds.
        """
        replay = self.effects.replay
        if replay.task.task is None:
            return  # One that has not begun is looked at again.
        replay.journal.is_last = True  # What still runs is told of to whoever cleans up.
        if replay.is_over:
            return
        if must_end and self._must_end is None:
            self._must_end = replay.task.loop.call_later(replay.task.unwind_seconds, self._end)
        if self._is_cancelling:
            return
        self._is_cancelling = True
        if not replay.task.task.done():
            replay.task.task.cancel()

    def _end(self) -> None:
        """The handler goes on although it must not: no effect of it counts any more."""
        if not self.effects.replay.is_over:
            self.effects.replay.task.fail(asyncio.CancelledError())

    # What it leaves behind

    def leaves(self, ended: Suspended | None = None, message: str | None = None) -> Suspension:
        """Changes of this leg that are not stored yet. Call `left(...)` with them once they are."""
        wake = None
        if ended is not None:
            pauses = self.effects.replay.pauses
            wake = min((until for name in ended.pauses if (until := pauses[name]) is not None), default=None)
        return self._questions.changes(wake, message)

    def left(self, leaves: Suspension) -> None:
        """The row knows this now."""
        self._questions.stored(leaves)

    @property
    def has_news(self) -> bool:
        """Whether a client would see a difference."""
        return self._questions.has_news and not self.effects.replay.is_over

    # The manual way: the handler ends its leg with questions, and is called again when they are answered

    @property
    def by_hand(self) -> Any:
        """What the last leg kept; None in the first, and where the handler asks with effects."""
        entry = self.effects.replay.journal.entries.get(BY_HAND)
        return None if entry is None else entry.value

    def questions_by_hand(self) -> dict[str, Question]:
        """The questions that the last leg ended with; none if they are settled."""
        return self._questions.current if _waits_by_hand(self.effects.replay.journal) else {}

    def settle_by_hand(self, kept: Any) -> None:
        """All of them are answered, and `kept` has the answers: what stands from now on is of effects."""
        for question in list(self._questions.current.values()):
            self._questions.mark_read(question)
        self.effects.replay.journal.add(BY_HAND, Entry("manual", "", kept))

    def ask_again_by_hand(self, asks: Mapping[str, Ask]) -> Suspended:
        """End the leg before it has begun, with some questions put again; the others stand."""
        for name, ask in asks.items():
            self._questions.mark_read(self._questions.current[name])
            self._questions.stand(ask, name)
        return Suspended(dict(asks), [])

    def ask_by_hand(self, asks: Mapping[str, Ask], kept: Any, pause: float | None) -> Suspended:
        """End the leg with these questions only; with a pause, go on after so many seconds."""
        replay = self.effects.replay
        for question in list(self._questions.current.values()):
            self._questions.mark_read(question)
        for name, ask in asks.items():
            self._questions.stand(ask, name)
        replay.journal.add(BY_HAND, Entry("manual", "", kept))
        if pause is not None:
            replay.pauses[BY_HAND] = replay.clock() + pause
        return Suspended(dict(asks), [] if pause is None else [BY_HAND])


def _waits_by_hand(journal: Journal) -> bool:
    """Whether the last leg ended with `InputRequired`. No part of the handler is run again then."""
    entry = journal.entries.get(BY_HAND)
    return entry is not None and not entry.value.get("settled")
