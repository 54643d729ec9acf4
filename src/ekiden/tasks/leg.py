"""A handler in a task: one run of it over the stored journal.

What differs from a leg of a request: a question is put as soon as it is clear that the leg goes on
without its answer, and an answer that comes meanwhile is delivered; a sleep is a time in the row; a
cancellation is the client's wish, which the handler may clean up after, with effects too.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from ekiden.errors import InternalError, MissingCapability
from ekiden.rounds.asks import Ask, MalformedAnswer, UnfitAnswer, declares
from ekiden.rounds.eagerly import EagerTask
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.ledger import RoundMemory
from ekiden.rounds.leg import Ended, Leg, Step, Suspended, current_step
from ekiden.rounds.outcome import Failed
from ekiden.tasks.moves import Suspension
from ekiden.tasks.record import Question
from ekiden.tasks.store import Held

__all__ = ["BY_HAND", "TaskCancelled", "TaskJournal", "TaskLeg"]

_log = logging.getLogger("ekiden.tasks")

_PUT_AFTER: Final = 0.005
"""Seconds after which a question is put although the leg still goes on. One that ends it goes with that."""


BY_HAND: Final = "m:manual"
"""Where the journal has what a handler keeps that asks by itself, not with effects."""


class TaskCancelled(Ended):
    """The handler ended because the task was cancelled."""

    def __init__(self) -> None:
        super().__init__(Failed(InternalError("The task was cancelled")))


class TaskJournal(Journal):
    """A journal that knows what of it the store does not know yet."""

    unsaved: dict[str, Entry] = {}
    committed: dict[str, Entry] = {}

    def add(self, key: str, entry: Entry) -> None:
        """Remember an effect; one that was committed before it was remembered needs no saving."""
        super().add(key, entry)
        if self.committed.pop(key, None) is not entry:
            self.unsaved[key] = entry


class TaskLeg(Leg, kw_only=True):
    """One run of a task's handler."""

    seen: set[str]
    """Keys of the answers that this leg knows of."""
    cancelling: bool = False
    _on_news: Callable[[], None]
    _attempts: dict[str, int]
    _current: dict[str, Question]
    _new: dict[str, Question] = {}
    _read: set[str] = set()
    _withdrawn: set[str] = set()
    _timers: dict[str, float] = {}
    _sleeps: int = 0

    @classmethod
    def of(
        cls,
        handler: str,
        held: Held,
        journal: TaskJournal,
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
            seen={key for key, question in questions.items() if question.answered},
            _on_news=on_news,
            _attempts=dict(held.record.asked),
            _current={question.name: question for question in questions.values()},
        )

    # What it leaves behind

    def leaves(self, ended: Suspended | None = None, message: str | None = None) -> Suspension:
        """What the row does not know yet. `leave` forgets it when the row does."""
        wake = None
        if ended is not None:
            wake = min((self._timers[name] for name in ended.pauses), default=None)
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
        for key, raw in responses.items():
            self.seen.add(key)
            if key in self._asks:
                self._asks.pop(key)[1].set_result(raw)
        for question in self._current.values():
            if question.key in responses:
                question.answered, question.response = True, responses[question.key]
        self._stir()

    def cancel(self) -> None:
        """The client wants the task to stop: the handler is cancelled, as any coroutine is."""
        if self.cancelling or self._over or self._main is None:
            return  # One that has not begun is looked at again.
        self.cancelling = True
        if not self._main.done():
            self._main.cancel()

    async def _wind_up(self, main: EagerTask) -> None:
        if self.cancelling and self._steps:
            await asyncio.wait(set(self._steps))  # The handler shielded them: they end, and count.
        await super()._wind_up(main)

    def _conclude(self) -> Any:
        if self.cancelling and self._eager is not None:
            cut = isinstance(self._ending, Suspended) or (
                self._ending is None and isinstance(self._eager.exception(), asyncio.CancelledError)
            )
            if cut:
                self._end()
                raise TaskCancelled
        return super()._conclude()

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
        self.journal.add(BY_HAND, Entry("manual", "", kept, False))
        if pause is not None:
            self._timers[BY_HAND] = self.clock() + pause
        return Suspended(dict(asks), [] if pause is None else [BY_HAND])

    # Effects

    async def ask(self, ask: Ask, key: str | None = None) -> Any:
        """The answer to a question: read before, here already, or awaited."""
        if self._over:
            await self._refuse()
        self._enter("ask", "asks")
        name = self._name("a:", key, ask.name)
        entry = self.journal.find(name)
        if entry is not None and entry.digest == ask.digest:
            with contextlib.suppress(UnfitAnswer, MalformedAnswer):
                return ask.read(entry.value)
        if not declares(self.capabilities, ask.needs):
            self._fail(MissingCapability(ask.needs))
        while True:
            question = self._put(name[2:], ask)
            raw = question.response if question.answered else await self._answer_to(question, ask)
            self._read.add(question.key)
            self._current.pop(question.name, None)
            try:
                value = ask.read(raw)
            except (MalformedAnswer, UnfitAnswer) as problem:
                _log.info("%s: the answer to %r is asked for again: %s", self.handler, question.key, problem)
            else:
                self._remember(name, Entry("answer", ask.digest, raw, self._in_order()))
                return value

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

    async def _answer_to(self, question: Question, ask: Ask) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._asks[question.key] = (ask, future)
        self._stir()
        self._loop.call_later(_PUT_AFTER, self._on_news)
        try:
            return await future
        except asyncio.CancelledError:
            if not self._over:
                self._asks.pop(question.key, None)
                self._withdraw(question)
            raise

    async def sleep(self, seconds: float, key: str | None = None) -> None:
        """Wait until a time that the row keeps: when nothing else goes on, the leg ends."""
        if current_step.get(None) is not None:
            await asyncio.sleep(seconds)
            return
        until: float = self.draw("sleep", lambda: self.clock() + seconds, key)
        await self._until(until)

    async def _until(self, until: float) -> None:
        if self._over:
            await self._refuse()
        if (remaining := until - self.clock()) <= 0:
            return
        self._sleeps += 1
        name = f"t:{self._sleeps}"
        future = self._pauses[name] = self._loop.create_future()
        self._timers[name] = until
        timer = self._loop.call_later(remaining, self._ring, name)
        self._stir()
        try:
            await future
        except asyncio.CancelledError:
            if not self._over:
                self._pauses.pop(name, None)
            raise
        finally:
            timer.cancel()

    def _ring(self, name: str) -> None:
        if not self._over and (future := self._pauses.pop(name, None)) is not None:
            future.set_result(None)
            self._stir()

    async def pause(self, key: str | None = None) -> None:
        """A checkpoint commits what has been done so far."""
        if self._over:
            await self._refuse()
        self._enter("end its round")
        name = self._name("p:", key, "checkpoint")
        if self.journal.find(name) is None:
            self._remember(name, Entry("pause", "", None, self._in_order()))
            assert self.memory is not None
            await self.memory.commit({})

    async def background(self, ttl: float | None = None, poll: float | None = None) -> None:
        """It is in the background already."""
        if self._over:
            await self._refuse()
        self._quiet = 0

    async def _first_time(self, step: Step, name: str) -> Entry:
        """Run a step until it is done, or until its policy gives up; the waits are durable."""
        tries = f"r:{name[2:]}"
        if (failed := self.journal.find(tries)) is not None:
            await self._until(failed.value[1])
        while (entry := await super()._first_time(step, name)).kind == "again":
            await self._until(entry.value[1])
        return entry

    async def _perform(self, step: Step, name: str, in_order: bool) -> Entry:
        if step.retry is None:
            return await super()._perform(step, name, in_order)
        current_step.set(f"{self.flow}:{name[2:]}")
        entry, again = await step.attempt()
        entry.in_order = in_order
        tries = f"r:{name[2:]}"
        known = self.journal.entries.get(tries)
        failures = 1 if known is None else known.value[0] + 1
        key = name
        if again and failures < step.retry.attempts:
            until = self.clock() + step.retry.delay(failures)
            key, entry = tries, Entry("again", step.digest, [failures, until], False)
        assert self.memory is not None
        await self.memory.commit({**self._drawn, key: entry})
        self._drawn.clear()
        self.journal.add(key, entry)
        return entry
