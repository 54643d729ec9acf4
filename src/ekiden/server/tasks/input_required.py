"""The manual way in a task: a leg that ends with `InputRequired`, and the next one with the answers.

What a sealed token carries from round to round, the task's journal carries from leg to leg: the state
that the author wrote, and the answers so far. The next leg begins when all questions are answered.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ekiden.errors import InvalidParams, MalformedAnswer, MissingCapability
from ekiden.rounds.asks import ELICIT, LIST_ROOTS, SAMPLE, Ask, declares, digest_of
from ekiden.rounds.claims import Claims
from ekiden.rounds.interpreter import mixed_styles
from ekiden.rounds.journal import Entry
from ekiden.rounds.leg import Suspended
from ekiden.server.questions.input_required import (
    InputRequired,
    capabilities_for,
    read_response,
    spelled_requests,
)
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

    @classmethod
    def of(cls, leg: TaskLeg) -> "ByHand":
        """What a leg begins with."""
        kept = leg.by_hand
        found = cls() if kept is None else msgspec.convert(kept, cls)
        found.new = {**found.new, **leg.answers_by_hand()}
        return found

    def waits(self, leg: TaskLeg) -> Suspended | None:
        """Suspend without running the handler if an answer is missing or malformed; else None."""
        if leg.by_hand is None:
            return None
        again: dict[str, Ask] = {}
        for key, request in leg.questions_by_hand().items():
            ask = _ask(key, request)
            if key in self.new:
                try:
                    ask.read(self.new[key])
                except MalformedAnswer:
                    again[key] = ask
        if not again and not leg.open_by_hand():
            return None
        return leg.ask_again_by_hand(again)

    def ends(self, leg: TaskLeg, manual: InputRequired, capabilities: Mapping[str, object]) -> Suspended:
        """Suspend the leg, because its handler returned `InputRequired`."""
        if leg.effects.style == "asks":
            raise mixed_styles(leg.effects.handler)
        asks = {key: _ask(key, request) for key, request in spelled_requests(manual).items()}
        for ask in asks.values():
            if not declares(capabilities, ask.needs):
                raise MissingCapability(ask.needs)
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


def carried(request: Request, claims: Claims) -> dict[str, Entry]:
    """The journal entry for the state and answers of the manual way from before the call became a task."""
    responses: Any = request.params.get("inputResponses")
    new: JsonObject = {}
    if is_object(responses):
        new = {key: raw for key, raw in responses.items() if not claims.round or key in claims.asked}
    is_manual = not claims.round or any(
        kind in (ELICIT, SAMPLE, LIST_ROOTS) for kind in claims.asked.values()
    )
    if claims.manual is None and not claims.answers and not (is_manual and new):
        return {}
    kept = ByHand(state=claims.manual, asked=claims.asked, answers=claims.answers or {}, new=new)
    return {BY_HAND: Entry("manual", "", msgspec.to_builtins(kept))}


def given_answers(entry: Entry) -> Any:
    """All answers in an entry that `carried` made."""
    return {**entry.value["answers"], **entry.value["new"]}
