"""What no interim result may do, whoever made it: a handler, a recorded round or a middleware.

Only three methods may answer with one, and a client is asked only what it declared (basic/utilities: Multi
Round-Trip Requests). What a handler asks is checked when it asks; this is for what others made.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from ekiden.errors import CannotAsk, InternalError, MissingCapability
from ekiden.rounds.asks import ELICIT, LIST_ROOTS, SAMPLE, declares, not_asked
from ekiden.rounds.outcome import Failed, Interim, Outcome
from ekiden.server.questions.input_required import capabilities_for, words_of
from ekiden.wire.json import is_object

__all__ = ["MAY_ASK", "check_question", "through_the_gate"]

_log = logging.getLogger(__name__)

MAY_ASK: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods that may answer with an interim result."""
_QUESTIONS: Final = (ELICIT, SAMPLE, LIST_ROOTS)


def through_the_gate(method: str, capabilities: Mapping[str, Any], outcome: Outcome) -> Outcome:
    """The outcome, or an error in place of an interim result that must not leave."""
    if not isinstance(outcome, Interim):
        return outcome
    problem = _problem(method, outcome)
    if problem is not None:
        _log.error("An interim result of %s was held back: %s", method, problem)
        return Failed(InternalError("Internal error"))
    for question in outcome.requests.values():
        if not declares(capabilities, needed := capabilities_for(question)):
            return Failed(MissingCapability(needed, question=words_of(question)))
    return outcome


def check_question(question: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    """`CannotAsk` if a question that is pushed to a client of 2025 is not one that it declared."""
    if question["method"] not in _QUESTIONS:
        return  # About a task of the client.
    if _is_odd(question):
        raise CannotAsk("The question was held back by the server")
    if not declares(capabilities, needed := capabilities_for(question)):
        raise CannotAsk(not_asked(needed, words_of(question)))


def _is_odd(question: object) -> bool:
    """Whether something is not a question at all."""
    if not is_object(question) or question.get("method") not in _QUESTIONS:
        return True
    params = question.get("params")
    return params is not None and not is_object(params)


def _problem(method: str, interim: Interim) -> str | None:
    """What is wrong with an interim result for any client."""
    if method not in MAY_ASK:
        return f"only {', '.join(sorted(MAY_ASK))} may have one"
    requests: Any = interim.requests  # A middleware may have put anything there.
    if not requests and interim.state is None:
        return "it has neither questions nor a state"
    if not is_object(requests):
        return "its questions must be an object"
    for key, question in requests.items():
        if _is_odd(question):
            return f"question {key!r} must be one of {', '.join(_QUESTIONS)}"
    return None
