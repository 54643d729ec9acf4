"""A question as its page shows it: who asks, for what, until when, and what will happen."""

import msgspec

from ekiden.pages.web.addresses import link_of
from ekiden.people.record import Inquiry
from ekiden.server.people.people import Kept, People
from ekiden.wire.printable import harmless, one_line

__all__ = ["Shown", "shown"]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The words of one question. All of them are text, never HTML."""

    server: str
    target: str
    description: str
    kind: str
    client: str
    person: str
    headline: str
    """The first line of the question."""
    more: str
    """What it says below that."""
    asked: float
    until: float
    left: float
    """Seconds until then."""
    again: bool
    """Whether an earlier answer could not be used."""
    ends_with: str
    """What happens if nobody answers."""
    url: str
    """The page of somebody else that is asked to be opened; empty for a form."""
    host: str


def shown(people: People, kept: Kept) -> Shown:
    """The words of a question."""
    inquiry = kept.inquiry
    title, description = people.describe(inquiry.method, inquiry.target)
    link = link_of(inquiry.params.get("url"))
    headline, _, more = harmless(inquiry.params.get("message", "")).strip().partition("\n")
    until = kept.row.expires if inquiry.deadline is None else inquiry.since + inquiry.deadline
    return Shown(
        server=one_line(people.name),
        target=one_line(title),
        description=harmless(description),
        kind={"prompts/get": "prompt", "resources/read": "resource"}.get(inquiry.method, "tool"),
        client=one_line(inquiry.client),
        person=one_line(inquiry.person),
        headline=headline,
        more=more.strip(),
        asked=inquiry.asked,
        until=until,
        left=max(0.0, until - people.clock()),
        again=inquiry.attempt > 1,
        ends_with=_ends_with(inquiry),
        url=link.address,
        host=one_line(link.host),
    )


def _ends_with(inquiry: Inquiry) -> str:
    if inquiry.deadline is None:
        return "Without an answer by then, nothing happens."
    if inquiry.turn + 1 < len(inquiry.persons):
        return "Without an answer by then, somebody else is asked."
    if inquiry.default is not None:
        return "Without an answer by then, it goes on with a default."
    return "Without an answer by then, it counts as a no."
