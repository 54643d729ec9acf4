"""What a client is told that waits for people, in words for its model."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ekiden.people.record import Inquiry

__all__ = ["Waiting", "in_words", "status_words", "without_links"]

_LONGEST: Final = 500
"""Characters of a question that a model is told."""
_LINK: Final = re.compile(r"(/[0-9a-f]{32}\.)[\w-]{43}(?![\w-])")
"""The end of a link: the id of the question, and the secret."""


class Waiting(msgspec.Struct, frozen=True):
    """A question that waits, and the link if whoever made the call may answer."""

    inquiry: Inquiry
    link: str | None


def in_words(waiting: Sequence[Waiting], what: str) -> str:
    """Why a call has no result yet, and what to do. `what` names the tool, prompt or resource."""
    parts = [_asked(each) for each in waiting] or ["The same call is made already, and asks a person."]
    own = any(each.link is not None for each in waiting)
    then = "Once that is done, call" if own else "To look whether there is an answer, call"
    return (
        f"{' '.join(parts)}\nThe call has not failed: it waits, and nothing of it is lost. "
        f"{then} {what} again with exactly the same arguments, and it goes on from where it is."
    )


def _asked(each: Waiting) -> str:
    question = _short(each.inquiry)
    if each.link is None:
        return f'{each.inquiry.person} was asked: "{question}". There is no answer yet.'
    return (
        f'The user has to answer a question first: "{question}". '
        f"Show the user this link, and ask to open it and to answer there: {each.link}"
    )


def status_words(waiting: Sequence[Waiting]) -> str:
    """The status message of a task that waits."""
    return " ".join(_asked(each) for each in waiting)


def _short(inquiry: Inquiry) -> str:
    message: str = inquiry.params.get("message", "")
    return message[:_LONGEST]


def without_links(text: str) -> str:
    """A text that may be kept: its links to questions open nothing. Whoever has one could answer."""
    return _LINK.sub(r"\1(hidden)", text) if "/" in text else text
