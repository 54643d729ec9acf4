"""The questions of a task, as its leg knows them: what stands in the row, and what is to be written there.

A question is put as soon as it is clear that the leg goes on without its answer. Its key on the wire is the
key of its effect plus the attempt: a question that is put again, or reworded, gets a new one.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ekiden.private_struct import PrivateStruct
from ekiden.rounds.asks import UNANSWERED, Ask, log_misfit
from ekiden.rounds.journal import Journal
from ekiden.signals import MalformedAnswer, UnfitAnswer
from ekiden.tasks.moves import Suspension
from ekiden.tasks.record import Question

__all__ = ["TaskQuestions"]

_PUT_AFTER: Final = 0.005
"""Seconds after which a question is put although the leg still goes on. One that ends it goes with that."""

_NONE: Final[dict[str, Any]] = {}


class TaskQuestions(PrivateStruct, kw_only=True):
    """The questions of one leg. Implements `ekiden.rounds.asks.Questions`."""

    handler: str
    """The handler in words, for logs."""
    capabilities: Mapping[str, Any]
    responses: Mapping[str, Any] = _NONE
    on_news: Callable[[], None]
    """Called when there may be something to write to the row."""
    current: dict[str, Question]
    """The questions that stand, by the key of their effect."""
    attempts: dict[str, int]
    """How often each was put, by the key of its effect."""
    seen: set[str]
    """Keys of the answers that this leg knows of."""
    is_paged: Callable[[Ask], bool] | None = None
    """Whether a question is answered on a page; None if there are none."""
    _open: dict[str, tuple[Ask, str, int]] = {}
    """What the handler waits for, by the key on the wire: with the key of its effect, and its branch."""
    _new: dict[str, Question] = {}
    _read: set[str] = set()
    _withdrawn: set[str] = set()

    # What the leg needs

    def answer_to(self, ask: Ask, key: str) -> Any:
        """The answer in the row, if there is one. It is read then."""
        question = self.current.get(key)
        if question is None or not question.answered or question.digest != ask.digest:
            return UNANSWERED
        self.mark_read(question)
        return question.response

    def misfits(self, key: str, problem: MalformedAnswer | UnfitAnswer) -> Exception | None:
        """It is asked for again, whatever is wrong with it: the client has had its reply already."""
        log_misfit(self.handler, key, problem)
        return None

    def put(self, ask: Ask, key: str, branch: int) -> str:
        """Put a question, unless it stands."""
        question = self.stand(ask, key)
        self._open[question.key] = (ask, key, branch)
        asyncio.get_running_loop().call_later(_PUT_AFTER, self.on_news)
        return question.key

    def withdraw(self, key: str) -> str | None:
        """The handler does not wait for the answer any more."""
        for wire_key, (_, effect, _) in self._open.items():
            if effect == key:
                del self._open[wire_key]
                self._take_back(self.current[key])
                return wire_key
        return None

    def of_last_leg(self) -> Iterable[str]:
        """Those that stand."""
        return self.current

    def keep_unread(self, journal: Journal, asks: Mapping[str, Ask]) -> None:
        """The row keeps them."""

    # What comes from the row, and what goes there

    def answered(self, responses: Mapping[str, Any]) -> Iterator[tuple[str, Ask, str, int]]:
        """Take answers. Of what the handler waits for: wire key, question, key of its effect, and branch."""
        self.seen.update(responses)
        for question in list(self.current.values()):
            if question.key in responses:
                question.answered, question.response = True, responses[question.key]
                if (waiting := self._open.pop(question.key, None)) is not None:
                    yield (question.key, *waiting)

    def stand(self, ask: Ask, key: str) -> Question:
        """The question as it stands, or a new one: a reworded question is another one."""
        question = self.current.get(key)
        if question is not None:
            if question.digest == ask.digest:
                return question
            self._take_back(question)
        attempt = self.attempts[key] = self.attempts.get(key, 0) + 1
        question = Question(key, attempt, ask.digest, ask.request())
        if self.is_paged is not None and self.is_paged(ask):
            question.paged, question.person = True, ask.person
        self.current[key] = self._new[question.key] = question
        return question

    def mark_read(self, question: Question) -> None:
        """The handler has its answer, or it is put again."""
        self._read.add(question.key)
        self.current.pop(question.name, None)

    def _take_back(self, question: Question) -> None:
        self.current.pop(question.name, None)
        if self._new.pop(question.key, None) is None:
            self._withdrawn.add(question.key)
            self.on_news()

    def changes(self, wake: float | None, message: str | None) -> Suspension:
        """What the row does not know yet. Call `stored(...)` with it once it does."""
        return Suspension(
            asked=tuple(self._new.values()),
            read=tuple(self._read),
            withdrawn=tuple(self._withdrawn),
            seen=frozenset(self.seen),
            wake=wake,
            message=message,
        )

    def stored(self, changes: Suspension) -> None:
        """The row knows this now."""
        for question in changes.asked:
            self._new.pop(question.key, None)
        self._read.difference_update(changes.read)
        self._withdrawn.difference_update(changes.withdrawn)

    @property
    def has_news(self) -> bool:
        """Whether a client would see a difference."""
        return bool(self._new or self._withdrawn)
