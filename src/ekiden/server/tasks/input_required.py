"""The manual way in a task: a leg that ends with `InputRequired`, and the next one with the answers.

What a sealed token carries from round to round, the task's journal carries from leg to leg: the state
that the author wrote, and the answers so far. The next leg begins when all questions are answered.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ekiden.errors import InvalidParams, MissingCapability
from ekiden.rounds.asks import Ask, declares, digest_of, is_method
from ekiden.rounds.call_state import CallState
from ekiden.rounds.interpreter import mixed_styles
from ekiden.rounds.journal import Entry
from ekiden.rounds.leg import Suspended
from ekiden.server.questions.input_required import (
    InputRequired,
    capabilities_for,
    read_response,
    spelled_requests,
)
from ekiden.signals import MalformedAnswer
from ekiden.tasks.leg import BY_HAND, TaskLeg
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.modern import Request

__all__ = ["ByHand", "carried", "given_answers"]

_SHORTEST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
"""Seconds before a handler that returned a state without questions is called again; they double each time."""


class ByHand(msgspec.Struct):
    """The state, the questions and the answers of a handler that returned `InputRequired`."""

    legs: int = 0
    """How often it has ended a leg."""
    state: str | None = None
    asked: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """The methods of its last questions, by its own keys."""
    answers: JsonObject = msgspec.field(default_factory=JsonObject)
    """The answers to earlier questions."""
    new: JsonObject = msgspec.field(default_factory=JsonObject)
    """The answers to its last questions."""
    settled: bool = False
    """Whether none of its questions stands in the row: `new` has all answers. From then on it may ask with
    effects as well, after `background`."""

    @classmethod
    def of(cls, leg: TaskLeg) -> "ByHand":
        """What a leg begins with."""
        kept = leg.by_hand
        found = cls() if kept is None else msgspec.convert(kept, cls)
        answered = {name: q.response for name, q in leg.questions_by_hand().items() if q.answered}
        found.new = {**found.new, **answered}
        return found

    def waits(self, leg: TaskLeg) -> Suspended | None:
        """Suspend without running the handler if an answer is missing or malformed; else None."""
        if leg.by_hand is None or self.settled:
            return None
        standing = leg.questions_by_hand()
        again: dict[str, Ask] = {}
        for key, question in standing.items():
            if question.answered:
                ask = _ask(key, question.request)
                try:
                    ask.read(question.response)
                except MalformedAnswer:
                    again[key] = ask
        if again or not all(question.answered for question in standing.values()):
            return leg.ask_again_by_hand(again)
        self.settled = True
        leg.settle_by_hand(msgspec.to_builtins(self))
        return None

    def ends(self, leg: TaskLeg, manual: InputRequired, capabilities: Mapping[str, object]) -> Suspended:
        """Suspend the leg, because its handler returned `InputRequired`."""
        if leg.effects.style == "asks":
            raise mixed_styles(leg.effects.handler)
        asks = {key: _ask(key, request) for key, request in spelled_requests(manual).items()}
        for ask in asks.values():
            if not declares(capabilities, ask.needs):
                raise MissingCapability(ask.needs, question=ask.words)
        kept = ByHand(
            legs=self.legs + 1,
            state=manual.request_state,
            asked={key: ask.method for key, ask in asks.items()},
            answers={**self.answers, **self.new},
        )
        pause = None if asks else min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2 ** min(self.legs, 10))
        return leg.ask_by_hand(asks, msgspec.to_builtins(kept), pause)


def _ask(key: str, request: Mapping[str, Any]) -> Ask:
    method: str = request["method"]
    params: Mapping[str, Any] | None = request.get("params")

    def read(raw: object) -> Any:
        try:
            return read_response(key, raw, method)
        except InvalidParams as problem:
            raise MalformedAnswer(problem.message) from None

    return Ask(method, params, capabilities_for(request), read, digest_of(method, params))


def carried(request: Request, state: CallState) -> dict[str, Entry]:
    """The journal entry for the state and answers of the manual way from before the call became a task."""
    responses: Any = request.params.get("inputResponses")
    given: JsonObject = responses if is_object(responses) else {}
    asked = {key: method for key, method in state.asked.items() if is_method(method)}
    new = {key: raw for key, raw in given.items() if key in asked}
    # In a first round it is not known what was asked: answers without a state count by their key.
    answers = {**(state.answers or {}), **({} if state.round else given)}
    if state.manual is None and not answers and not new:
        return {}
    kept = ByHand(state=state.manual, asked=asked, answers=answers, new=new, settled=True)
    return {BY_HAND: Entry("manual", "", msgspec.to_builtins(kept))}


def given_answers(entry: Entry) -> Any:
    """All answers in an entry that `carried` made."""
    return {**entry.value["answers"], **entry.value["new"]}
