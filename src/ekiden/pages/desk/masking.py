"""What a viewer may see of a story: all, or only what happened when, how long it took, and how large."""

import msgspec

from ekiden.pages.desk.story import Difference, LegView, Mark, StoryView
from ekiden.stories.events import CallFacts

__all__ = ["masked"]


def masked(view: StoryView) -> StoryView:
    """A story without values: arguments, answers, results, log lines and what was asked."""
    facts = view.facts
    return msgspec.structs.replace(
        view,
        facts=CallFacts("", facts.arguments_size, facts.client, facts.era, {}, facts.trace, facts.rounds),
        legs=[_leg(leg) for leg in view.legs],
        questions=[
            msgspec.structs.replace(each, answer="", request={"method": each.request.get("method", "")})
            for each in view.questions
        ],
        difference=None if view.difference is None else Difference("The two sides are masked."),
    )


def _leg(leg: LegView) -> LegView:
    return msgspec.structs.replace(
        leg,
        result="",
        marks=[_mark(mark) for mark in leg.marks],
        lines=[msgspec.structs.replace(line, value="") for line in leg.lines],
    )


def _mark(mark: Mark) -> Mark:
    label = "a question" if mark.kind == "answer" else mark.label
    return msgspec.structs.replace(mark, label=label, value="", about="", failures=[])
