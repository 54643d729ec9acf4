"""A handler in a task: one run of it over the stored journal.

What differs from a leg of a request: a question is put as soon as it is clear that the leg goes on
without its answer, and an answer that comes meanwhile is delivered; a sleep is a time in the row; a
cancellation is the client's wish, which the handler may clean up after, with effects too.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context, copy_context
from functools import partial
from typing import Any, ClassVar, Final, Self

from ekiden.errors import InternalError, MalformedAnswer, MissingCapability, TaskCancelled, UnfitAnswer
from ekiden.rounds.asks import Ask, declares
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.ledger import RoundMemory
from ekiden.rounds.leg import BACKGROUND, SOON, Leg, Step, Suspended
from ekiden.rounds.outcome import Failed
from ekiden.rounds.turns import Waiter
from ekiden.tasks.moves import Suspension
from ekiden.tasks.record import Question
from ekiden.tasks.store import Held

__all__ = ["BY_HAND", "TaskLeg"]

_log = logging.getLogger("ekiden.tasks")

_PUT_AFTER: Final = 0.005
"""Seconds after which a question is put although the leg still goes on. One that ends it goes with that."""


BY_HAND: Final = "m:manual"
"""Where the journal has what a handler keeps that asks by itself, not with effects."""


class TaskLeg(Leg, kw_only=True):
    """One run of a task's handler."""

    waits: ClassVar[bool] = True
    seen: set[str]
    """Keys of the answers that this leg knows of."""
    cancelling: bool = False
    _on_news: Callable[[], None]
    _attempts: dict[str, int]
    _current: dict[str, Question]
    _new: dict[str, Question] = {}
    _read: set[str] = set()
    _withdrawn: set[str] = set()
    _open: dict[str, tuple[Ask, str, int]] = {}
    """The questions that wait for an answer, by key: each with its effect's name and branch."""

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
    ) -> Self:
        """The next run of a task that is held."""
        questions = held.record.questions
        return cls(
            handler,
            journal,
            responses={},
            asked={},
            fresh=not held.entries,
            capabilities=capabilities,
            now=clock,
            flow=held.record.flow,
            memory=memory,
            frontier=() if held.record.asked else (BACKGROUND,),
            seen={key for key, question in questions.items() if question.answered},
            _on_news=on_news,
            _attempts=dict(held.record.asked),
            _current={question.name: question for question in questions.values()},
        )

    # What it leaves behind

    def leaves(self, ended: Suspended | None = None, message: str | None = None) -> Suspension:
        """Changes of this leg that are not stored yet. Call `left(...)` with them once they are."""
        wake = None
        if ended is not None:
            wake = min(
                (until for name in ended.pauses if (until := self._pauses[name]) is not None), default=None
            )
        return Suspension(
            asked=tuple(self._new.values()),
            read=tuple(self._read),
            withdrawn=tuple(self._withdrawn),
            seen=frozenset(self.seen),
            wake=wake,
            message=message,
        )

    def left(self, leaves: Suspension) -> None:
        """The row knows this now."""
        for question in leaves.asked:
            self._new.pop(question.key, None)
        self._read.difference_update(leaves.read)
        self._withdrawn.difference_update(leaves.withdrawn)

    @property
    def has_news(self) -> bool:
        """Whether a client would see a difference."""
        return bool(self._new or self._withdrawn) and not self._over

    # What reaches it while it runs

    def deliver(self, responses: Mapping[str, Any]) -> None:
        """Answers have come."""
        if self._over:
            return
        self.seen.update(responses)
        for question in list(self._current.values()):
            if question.key in responses and not self._over:
                question.answered, question.response = True, responses[question.key]
                if (waiting := self._open.pop(question.key, None)) is not None:
                    self._answer(question, *waiting)

    def cancel(self) -> None:
        """The client wants the task to stop: the handler is cancelled, as any coroutine is."""
        if self.cancelling or self._over or self._main is None:
            return  # One that has not begun is looked at again.
        self.cancelling = True
        if not self._main.done():
            self._main.cancel()

    def _concluded(self) -> Any:
        if self.cancelling and self._main is not None:
            is_cut = isinstance(self._ending, Suspended) or (self._ending is None and self._main.cancelled())
            if is_cut:
                self._end()
                raise TaskCancelled(Failed(InternalError("The task was cancelled")))
        return super()._concluded()

    # The manual way: the handler ends its leg with questions, and is called again when they are answered

    @property
    def by_hand(self) -> Any:
        """What the last leg kept; None in the first, and where the handler asks with effects."""
        entry = self.journal.entries.get(BY_HAND)
        return None if entry is None else entry.value

    def questions_by_hand(self) -> dict[str, dict[str, Any]]:
        """The questions that the last leg ended with."""
        return {name: question.request for name, question in self._current.items()}

    def answers_by_hand(self) -> dict[str, Any]:
        """The answers to them so far."""
        if self.by_hand is None:
            return {}
        return {name: question.response for name, question in self._current.items() if question.answered}

    def open_by_hand(self) -> bool:
        """Whether any is unanswered."""
        return not all(question.answered for question in self._current.values())

    def ask_again_by_hand(self, asks: Mapping[str, Ask]) -> Suspended:
        """End the leg before it has begun, with some questions put again; the others stand."""
        for name, ask in asks.items():
            self._read.add(self._current.pop(name).key)
            self._put(name, ask)
        return Suspended(dict(asks), [])

    def ask_by_hand(self, asks: Mapping[str, Ask], kept: Any, pause: float | None) -> Suspended:
        """End the leg with these questions only; with a pause, go on after so many seconds."""
        self._read.update(question.key for question in self._current.values())
        self._current.clear()
        for name, ask in asks.items():
            self._put(name, ask)
        self.journal.add(BY_HAND, Entry("manual", "", kept))
        if pause is not None:
            self._pauses[BY_HAND] = self.clock() + pause
        return Suspended(dict(asks), [] if pause is None else [BY_HAND])

    # Effects

    def _open_questions(self) -> Iterable[str]:
        return self._current

    def _begin_ask(self, ask: Ask, name: str, branch: int) -> None:
        if not declares(self.capabilities, ask.needs):
            self._break(MissingCapability(ask.needs))
            return
        question = self._put(name[2:], ask)
        if question.answered:
            self._answer(question, ask, name, branch)
        else:
            self._asks[question.key] = ask
            self._open[question.key] = (ask, name, branch)
            self._loop.call_later(_PUT_AFTER, self._on_news)

    def _answer(self, question: Question, ask: Ask, name: str, branch: int) -> None:
        """An answer is there. One that does not fit is asked for again, under a new key."""
        self._asks.pop(question.key, None)
        self._read.add(question.key)
        self._current.pop(question.name, None)
        try:
            value = self._value_of(ask, question.response)
        except asyncio.CancelledError:
            return  # The leg has ended with an error.
        except (MalformedAnswer, UnfitAnswer) as problem:
            _log.info("%s: the answer to %r is asked for again: %s", self.handler, question.key, problem)
            self._begin_ask(ask, name, branch)
            self._my_turns().stir()
        else:
            self._remember(name, Entry("answer", ask.digest, question.response, branch))
            self._my_turns().arrive(name, value)

    def _cut(self, waiter: Waiter, digest: str, step: Step | None) -> None:
        for key, (_, name, _) in list(self._open.items()):
            if name == waiter.name:
                del self._open[key], self._asks[key]
                self._withdraw(self._current[name[2:]])
        self._pauses.pop(_tries(waiter.name), None)
        super()._cut(waiter, digest, step)

    def _put(self, name: str, ask: Ask) -> Question:
        """The question as it stands open, or a new one: a reworded question is another one."""
        current = self._current.get(name)
        if current is not None:
            if current.digest == ask.digest:
                return current
            self._withdraw(current)
        attempt = self._attempts[name] = self._attempts.get(name, 0) + 1
        question = Question(name, attempt, ask.digest, ask.request())
        self._current[name] = self._new[question.key] = question
        return question

    def _withdraw(self, question: Question) -> None:
        self._current.pop(question.name, None)
        if self._new.pop(question.key, None) is None:
            self._withdrawn.add(question.key)
            self._on_news()

    def _begin_sleep(self, name: str, until: float, branch: int) -> None:
        """Wait until a time that the row keeps: when nothing else goes on, the leg ends."""
        self._pauses[name] = until
        super()._begin_sleep(name, until, branch)

    def _awake(self, name: str, branch: int) -> None:
        self._pauses.pop(name, None)
        super()._awake(name, branch)

    async def pause(self, key: str | None = None) -> None:
        """A checkpoint commits what has been done so far."""
        if self._over:
            await self._refuse()
        self._enter("end its round")
        name = self._name("p:", key, "checkpoint")
        await self._passed(name, partial(self._begin_commit, name))

    def _begin_commit(self, name: str, branch: int) -> None:
        self._run_beside(self._record(name, Entry("pause", "", None, branch)))

    async def background(self, ttl: float | None = None, poll: float | None = None) -> None:
        """It is in the background already."""
        if self._over:
            await self._refuse()
        self._enter("become a task")
        if BACKGROUND in self.journal.entries:
            await self._passed(BACKGROUND, partial(self._begin_pause, BACKGROUND))

    # Steps that are tried again

    def _begin_step(self, step: Step, name: str, context: Context, branch: int) -> None:
        """Begin a step, or wait until it may be tried again. The time is in the row."""
        tries = _tries(name)
        failed = self.journal.find(tries)
        self.journal.backlog.pop(tries, None)
        if failed is None or failed.value[1] - self.clock() < SOON:
            super()._begin_step(step, name, context, branch)
        else:
            self._try_at(failed.value[1], step, name, context, branch)

    def _try_at(self, until: float, step: Step, name: str, context: Context, branch: int) -> None:
        tries, seconds = _tries(name), max(0.0, until - self.clock())
        self._pauses[tries] = until
        alarm = self._loop.call_later(seconds, self._try_again, step, name, context, branch)
        self._my_turns().alarms[tries] = alarm

    def _try_again(self, step: Step, name: str, context: Context, branch: int) -> None:
        if self._turns is not None:
            self._turns.alarms.pop(_tries(name), None)
        if not self._over and self._pauses.pop(_tries(name), None) is not None:
            super()._begin_step(step, name, context, branch)

    async def _performed(self, step: Step, name: str) -> Entry | None:
        if step.retry is None:
            return await step.perform()
        entry, again = await step.attempt()
        tries = _tries(name)
        known = self.journal.entries.get(tries)
        failures = 1 if known is None else known.value[0] + 1
        if not again or failures >= step.retry.attempts:
            return entry
        until = self.clock() + step.retry.delay(failures)
        if self._performing[name].unwound is None:
            self._remember(tries, Entry("again", step.digest, [failures, until]))
            if not self._over:
                self._try_at(until, step, name, copy_context(), self._my_turns().waiting[name].branch)
        return None


def _tries(name: str) -> str:
    """Where the journal counts how often a step has failed."""
    return f"r:{name[2:]}"
