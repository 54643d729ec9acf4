"""What traces and stories are told of a round: which call it belongs to."""

from ekiden.rounds.call_state import CallState
from ekiden.rounds.leg import Leg
from ekiden.stories.telling import current_story
from ekiden.telemetry.context import link_to
from ekiden.wire.meta import TRACE_LINK
from ekiden.wire.modern import Request

__all__ = ["hold_story", "link_first_span", "tell_story"]


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


def link_first_span(state: CallState, request: Request) -> None:
    """Link the span of this round to that of the first, unless the client has said where that is."""
    if state.trace is not None and state.trace != request.meta.fields.get(TRACE_LINK):
        link_to(state.trace)
