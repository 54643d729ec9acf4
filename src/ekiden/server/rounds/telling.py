"""What traces, stories, metrics and the log are told of a round."""

import logging
from collections.abc import Sequence
from typing import Final

from ekiden.people.record import Inquiry
from ekiden.rounds.asks import ELICIT
from ekiden.rounds.call_state import CallState
from ekiden.rounds.leg import Leg
from ekiden.server.sealing.tokens import RoundLimits
from ekiden.stories.telling import current_story
from ekiden.telemetry.context import link_to
from ekiden.telemetry.metrics import RERUN_DURATION, record
from ekiden.wire.meta import TRACE_LINK
from ekiden.wire.modern import Request

__all__ = [
    "MANY_ROUNDS",
    "hold_story",
    "link_first_span",
    "report_rerun",
    "tell_of_people",
    "tell_story",
    "warn_of_many",
]

_log = logging.getLogger(__name__)

_GIVE_UP: Final = 10
"""Interim results after which clients give up by default; all official SDKs agree on it."""
MANY_ROUNDS: Final = _GIVE_UP - 3
"""The number of the round after which a call is warned of, once."""
_MANY: Final = "%s has ended %d rounds; clients give up after %d by default"
_SLOW: Final = "%s took %.0f ms to repeat what earlier rounds did; put its slow parts into ctx.step"


def hold_story() -> None:
    """It is not known yet which call this is a round of."""
    if (story := current_story.get()) is not None:
        story.hold()


def tell_story(state: CallState, leg: Leg | None = None) -> None:
    """Tell the story, if there is one, which call this is, and that its handler begins to run."""
    if (story := current_story.get()) is not None:
        story.belongs_to(state.flow, state.round, state.started)
        if leg is not None:
            story.leg(leg.replay)


def tell_of_people(waiting: Sequence[Inquiry]) -> None:
    """Tell the story, if there is one, that the call waits for answers of people."""
    if (story := current_story.get()) is not None:
        story.waits_for(
            {
                each.key: ({"method": ELICIT, "params": each.params}, each.person or "the caller's user")
                for each in waiting
            }
        )


def link_first_span(trace: str, request: Request) -> None:
    """Link the span of this round to that of the first, unless the client has said where that is."""
    if trace != request.meta.fields.get(TRACE_LINK):
        link_to(trace)


def report_rerun(title: str, seconds: float | None, limits: RoundLimits) -> None:
    """Report how long a handler took to repeat what earlier rounds did, if it did; warn if that was long."""
    if seconds is None:
        return
    record(RERUN_DURATION, seconds, {"handler": title})
    if seconds > limits.rerun_seconds:
        _log.warning(_SLOW, title, seconds * 1000)


def warn_of_many(handler: str) -> None:
    """Say that clients will soon give the call up."""
    _log.warning(_MANY, handler, MANY_ROUNDS + 1, _GIVE_UP)
