"""What traces and stories are told of a round: which call it belongs to."""

from collections.abc import Sequence

from ekiden.people.record import Inquiry
from ekiden.rounds.asks import ELICIT
from ekiden.rounds.call_state import CallState
from ekiden.rounds.leg import Leg
from ekiden.stories.telling import current_story
from ekiden.telemetry.context import link_to
from ekiden.wire.meta import TRACE_LINK
from ekiden.wire.modern import Request

__all__ = ["hold_story", "link_first_span", "tell_of_people", "tell_story"]


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
