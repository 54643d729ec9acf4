"""Questions that are put to a person by name, instead of to the client's user."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ekiden.errors import UsageError
from ekiden.rounds.asks import PAGED, PAGES, Ask, Person
from ekiden.rounds.journal import fingerprint, framed
from ekiden.server.questions.content import to_json
from ekiden.signals import MalformedAnswer, UnfitAnswer
from ekiden.wire.json import is_object

__all__ = ["addressed"]


def addressed(ask: Ask, who: str | Person, capabilities: Mapping[str, Any]) -> Ask:
    """The question as it is put to this person. To another person it is another question."""
    if capabilities.get(PAGES) is not PAGED:
        raise UsageError("who= needs pages to answer on: Server(pages=Pages(...), store=...)")
    person = Person(who) if isinstance(who, str) else who
    names = (person.name, *person.escalate)
    for name in names:
        if not name or not name.isprintable():
            raise UsageError(f"who= must name a person on one line, such as an e-mail address, not {name!r}")
    for what, seconds in (("remind", person.remind), ("deadline", person.deadline)):
        if seconds is not None and seconds <= 0:
            raise UsageError(f"Person({what}=...) must be a positive number of seconds")
    if person.deadline is None and (person.escalate or person.default is not None):
        raise UsageError("Person(escalate=...) and Person(default=...) need a deadline=")
    content = None if person.default is None else _content(ask, person.default)
    digest = fingerprint(framed(b"who", *(name.encode() for name in names), ask.digest.encode()))
    return Ask(
        ask.method, ask.params, {}, ask.read, digest, person=msgspec.structs.replace(person, default=content)
    )


def _content(ask: Ask, default: object) -> Mapping[str, Any]:
    """The default as the content of an answer; it must fit the question."""
    spelled = to_json(default)
    content: Any = spelled if is_object(spelled) else {"value": spelled}
    try:
        ask.read({"action": "accept", "content": content})
    except (MalformedAnswer, UnfitAnswer) as problem:
        raise UsageError(f"Person(default=...) does not fit the question: {problem}") from None
    return dict(content)
