"""What can be asked of the other side, and how its answer is read.

An ask knows its question as the wire spells it, the capability it needs, and how to read an
answer. A client may answer anything, so reading has three results: a value; `MalformedAnswer`, where the
answer is not a result of the question's kind, which is an error; `UnfitAnswer`, where it breaks the
question's own rules, and is asked for again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from ekiden.errors import InvalidParams
from ekiden.private_struct import PrivateStruct
from ekiden.rounds.journal import UNKNOWN_BRANCH, Entry, Journal, fingerprint, framed
from ekiden.signals import MalformedAnswer, UnfitAnswer
from ekiden.wire.json import canonical
from ekiden.wire.printable import printable

__all__ = [
    "UNANSWERED",
    "Ask",
    "Person",
    "Questions",
    "RoundQuestions",
    "declares",
    "is_method",
    "log_misfit",
    "malformed",
]

_log = logging.getLogger(__name__)

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
LIST_ROOTS: Final = "roots/list"

_PREFIXES: Final = {ELICIT: "elicit", SAMPLE: "sample", LIST_ROOTS: "roots"}
"""The readable part of a name, by method."""


_WHO: Final = {
    "elicitation": "The user could not be asked",
    "sampling": "The client's model could not be asked",
    "roots": "The client could not be asked for its roots",
}
PAGES: Final = "ekiden/pages"
"""Beside the capabilities of a client: its value is `PAGED` itself, where people can be asked on pages."""
PAGED: Final[Mapping[str, Any]] = {}
QUESTIONS: Final = _WHO.keys()
"""The capabilities that questions need."""
_LONGEST_QUESTION: Final = 500
"""Characters of a question that a model is told."""

_FORM_MODE: Final[Mapping[str, Any]] = {"form": {}}


_CHANGED: Final = (
    "%s: the answer to %r came, and it was not asked again; %r was. "
    "A question that changes with every round is asked for ever"
)

_WORDS: Final = 48
"""Characters of a question that a token carries."""


class Person(msgspec.Struct, frozen=True):
    """Who is asked, and what happens if there is no answer: `ctx.elicit(..., who=Person("a@example.com"))`.

    Every `remind` seconds the person is reminded. After `deadline` seconds the question goes to the next of
    `escalate`, who has as long again; after the last of them `default` is the answer, or a decline.
    """

    name: str
    remind: float | None = None
    deadline: float | None = None
    escalate: tuple[str, ...] = ()
    default: Any = None


class Ask(msgspec.Struct, frozen=True):
    """One question to the user, to the client's model or to the client."""

    method: str
    params: Mapping[str, Any] | None
    needs: Mapping[str, Any]
    """The client capabilities it needs, spelled as a client would declare them."""
    read: Callable[[Any], Any]
    digest: str
    """Fingerprint of the question as it is rendered: a reworded question is another question."""
    name: str = ""
    """What it is called where the author has no name for it."""
    person: Person | None = None
    """Who is asked; None: the client, or its user."""
    words: str = ""
    """What the user reads; empty if somebody else is asked."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", f"{_PREFIXES[self.method]}-{self.digest}")
        if self.params is not None:
            msgspec.structs.force_setattr(self, "words", self.params.get("message", ""))

    def label(self) -> str:
        """What a token says of the question: its name and, for the log, how it begins."""
        return f"{self.name} {self.words[:_WORDS]}"

    def request(self) -> dict[str, Any]:
        """The question as an input request."""
        if self.params is None:
            return {"method": self.method}
        return {"method": self.method, "params": {**self.params}}


UNANSWERED: Final = object()
"""In place of an answer that has not come."""


class Questions(Protocol):
    """The questions of one leg, and where their answers come from: the request of a round, or a task's row.

    A question is known by its key: that of its effect, without the name space.
    """

    capabilities: Mapping[str, Any]
    """What the client is capable of."""
    responses: Mapping[str, Any]
    """The answers that came with the request, by key; none in a task."""

    def answer_to(self, ask: Ask, key: str) -> Any:
        """The answer that has come to this very question, as it came, or `UNANSWERED`."""
        ...

    def misfits(self, key: str, problem: MalformedAnswer | UnfitAnswer) -> Exception | None:
        """That answer cannot be used: it is asked for again, unless this gives an error."""
        ...

    def put(self, ask: Ask, key: str, branch: int) -> str:
        """Put a question; the key that its answer will come with."""
        ...

    def withdraw(self, key: str) -> str | None:
        """The handler does not wait for the answer any more; the key that it would have come with."""
        ...

    def of_last_leg(self) -> Iterable[str]:
        """The keys of the questions that the last leg ended with."""
        ...

    def keep_unread(self, journal: Journal, asks: Mapping[str, Ask]) -> None:
        """The leg ends, with these questions: keep the answers that the handler has not come to."""
        ...


class RoundQuestions(PrivateStruct, gc=False):
    """The questions of one round. Its answers came with the request."""

    handler: str
    """The handler in words, for logs."""
    responses: Mapping[str, Any]
    asked: Mapping[str, str] | None
    """What the answers were asked for, by key; None in a first round, where there is no token to tell."""
    capabilities: Mapping[str, Any]
    _unfit: frozenset[str] = frozenset()

    def answer_to(self, ask: Ask, key: str) -> Any:
        """The answer that came with the request, if it was asked for by this very question."""
        if self.asked is None:
            # Without a token it cannot be told whether an answer was given to this very question. Nor does it
            # count then what a client says for somebody else, who has not even been asked.
            return UNANSWERED if ask.person is not None else self.responses.get(key, UNANSWERED)
        if not self.asked.get(key, "").startswith(ask.name):  # Names are equally long.
            return UNANSWERED
        return self.responses.get(key, UNANSWERED)

    def misfits(self, key: str, problem: MalformedAnswer | UnfitAnswer) -> Exception | None:
        """One that does not answer the question at all is the client's error."""
        if isinstance(problem, MalformedAnswer):
            return malformed(key, problem)
        self._unfit |= {key}
        log_misfit(self.handler, key, problem)
        return None

    def put(self, ask: Ask, key: str, branch: int) -> str:
        """It goes out with the end of the round, under the key of its effect."""
        return key

    def withdraw(self, key: str) -> str | None:
        """It does not go out."""
        return key

    def of_last_leg(self) -> Iterable[str]:
        """The questions that the answers were asked for."""
        return self.asked or ()

    def keep_unread(self, journal: Journal, asks: Mapping[str, Ask]) -> None:
        """The token of this round carries them to the next."""
        if not self.asked:
            return
        answered = [key for key in self.asked if key in self.responses and not is_method(self.asked[key])]
        unread = [k for k in answered if k not in self._unfit and f"a:{k}" not in journal.entries]
        asked_now = {ask.label() for ask in asks.values()}.difference(self.asked.values())
        for key in unread:
            name, _, words = self.asked[key].partition(" ")
            answer = Entry("answer", name.partition("-")[2], self.responses[key], UNKNOWN_BRANCH)
            journal.entries[f"a:{key}"] = answer
            # Where an answer was read, it may have led to what is asked now, and this one's branch be late.
            if asked_now and len(unread) == len(answered):
                _log.warning(_CHANGED, self.handler, words or key, asked_now.pop().partition(" ")[2])


def log_misfit(handler: str, key: str, problem: Exception) -> None:
    """Log that an answer is asked for again. Why quotes the answer, which is not for every log."""
    _log.info("%s: the answer to %r is asked for again", handler, key)
    _log.debug("%s: what is wrong with the answer to %r: %s", handler, key, printable(str(problem)))


def is_method(label: str | None) -> bool:
    """Whether a token says only the method of a question: then its handler asked with `InputRequired`."""
    return label in _PREFIXES


def digest_of(method: str, params: Mapping[str, Any] | None) -> str:
    """The fingerprint of a question."""
    return fingerprint(framed(method.encode(), canonical(params)))


def declares(declared: Mapping[str, Any], needed: Mapping[str, Any]) -> bool:
    """Whether capabilities include what is needed. `elicitation: {}` means its form mode."""
    for name, wanted in needed.items():
        given: Any = declared.get(name)
        if given.__class__ is not dict:
            return False
        if not given and name == "elicitation":
            given = _FORM_MODE
        if wanted and given != wanted and not declares(given, wanted):
            return False
    return True


def not_asked(needs: Mapping[str, Any], question: str = "") -> str:
    """What to tell the model or the user of a client that cannot be asked something, in words."""
    missing = " and ".join(f"{name} ({', '.join(more)})" if more else name for name, more in needs.items())
    if not needs or not _WHO.keys() >= needs.keys():
        return f"This needs a client that declares {missing}, which this one does not"
    who = " and ".join(_WHO[name] for name in needs)
    words = f" {question[:_LONGEST_QUESTION]!r}" if question else ""
    return (
        f"{who}{words}, because this client does not support {missing}. The call has ended without a result."
    )


def malformed(key: str, problem: MalformedAnswer) -> InvalidParams:
    """The error for a response that does not answer the question it came for."""
    return InvalidParams(f"Invalid params: the response {key!r} does not answer what was asked: {problem}")
