"""What happened in a call, worked out of its events: legs and workers, effects, questions, log lines."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ekiden.stories.events import CallFacts, CallRow, Event, decode_facts
from ekiden.wire.json import is_array, is_object

__all__ = ["Difference", "LegView", "Line", "Mark", "QuestionView", "StoryView", "assembled", "label_of"]

MarkState: TypeAlias = Literal["run", "replayed", "retried", "failed", "waiting", "cut"]

_DIGEST: Final = re.compile(r"-[A-Za-z0-9_-]{12}(-\d+)?\Z")
_ATTEMPT: Final = re.compile(r"\.\d+\Z")
"""What a task adds to the key of a question."""
_KINDS: Final = {"s": "step", "a": "answer", "z": "sleep", "p": "checkpoint", "d": "value", "q": "scope"}
"""What the name of an effect begins with, in words. Others are of no interest to a reader."""
_HOW: Final = {
    "completed": "done",
    "tool failed": "failed",
    "failed": "failed",
    "cancelled": "cancelled",
    "asked": "waiting",
    "sleeping": "waiting",
    "no answer yet": "waiting",
    "checkpoint": "run",
    "became a task": "run",
    "handed over": "retried",
    "begun again": "retried",
}
"""The state in which a leg ended, by how it ended."""
_ASKED: Final = {
    "elicitation/create": "a question to the user",
    "sampling/createMessage": "a message of the client's model",
    "roots/list": "the client's roots",
}
"""What is asked, where its words are not there."""
_json: Final = msgspec.json.Decoder().decode


class Mark(msgspec.Struct, kw_only=True):
    """One effect in a leg."""

    key: str
    """Its name in the journal."""
    label: str
    kind: str
    state: MarkState
    at: float
    seconds: float | None = None
    tries: int = 1
    about: str = ""
    value: str = ""
    size: int = 0
    failures: list[str] = msgspec.field(default_factory=list[str])
    """What went wrong in tries that were repeated, as JSON."""

    @property
    def troubles(self) -> list[str]:
        """What went wrong in tries that were repeated, in words."""
        return [_trouble(failure) for failure in self.failures if failure]


class Line(msgspec.Struct):
    """A log line, or how far the call is."""

    at: float
    level: str
    value: str
    size: int
    logger: str


class QuestionView(msgspec.Struct, kw_only=True):
    """A question, and its answer if there is one."""

    key: str
    request: dict[str, Any]
    """As the client saw it; empty if it was not kept."""
    asked: float
    answered: float | None = None
    answer: str = ""
    size: int = 0
    who: str = ""
    """Whose answer it waits for, if that is known."""

    @property
    def waited(self) -> float | None:
        """Seconds until the answer came."""
        return None if self.answered is None else max(0.0, self.answered - self.asked)

    @property
    def words(self) -> str:
        """What was asked."""
        params: dict[str, Any] = self.request.get("params") or {}
        method = str(self.request.get("method", ""))
        return str(params.get("message") or _ASKED.get(method) or method or "a question")


class Difference(msgspec.Struct):
    """The two sides of a replay that went another way."""

    problem: str = ""
    before: str = ""
    now: str = ""


class LegView(msgspec.Struct, kw_only=True):
    """One run of the handler by one worker."""

    id: str
    worker: str
    began: float
    round: int = 1
    fence: int | None = None
    ended: float | None = None
    how: str = ""
    """Empty while it runs."""
    state: str = "working"
    waited: float | None = None
    """Seconds between the end of the leg before and this one."""
    marks: list[Mark] = msgspec.field(default_factory=list[Mark])
    replayed: list[str] = msgspec.field(default_factory=list[str])
    lines: list[Line] = msgspec.field(default_factory=list[Line])
    token: int = 0
    """Bytes of the state that went out at its end."""
    journal: list[list[Any]] = msgspec.field(default_factory=list[list[Any]])
    """The journal at its end: key, kind, digest, branch and bytes of each entry."""
    result: str = ""
    result_size: int = 0
    known: dict[str, Mark] = msgspec.field(default_factory=dict[str, Mark])
    """The first mark of each key, so that a leg of thousands takes no time."""

    def add(self, mark: Mark) -> Mark:
        """Add a mark at the end."""
        self.marks.append(mark)
        return self.known.setdefault(mark.key, mark)

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        return None if self.ended is None else max(0.0, self.ended - self.began)

    def spans(self) -> list[tuple[str, int, int, str]]:
        """Its bar: what was done when, in thousandths of its duration, drawn in that order."""
        last = max([self.ended or self.began, *(m.at + (m.seconds or 0.0) for m in self.marks)])
        whole = max(last - self.began, 1e-6)
        ground = "working" if self.state == "working" else "replayed"
        drawn = [(ground, 0, 1000, f"the leg: {self.how or 'it runs'}")]
        for mark in self.marks:
            if mark.state == "replayed":
                continue
            start = min(985, max(0, round(1000 * (mark.at - self.began) / whole)))
            length = min(1000 - start, max(12, round(1000 * (mark.seconds or 0.0) / whole)))
            drawn.append((mark.state, start, length, f"{mark.label}: {mark.state}"))
        return drawn


class StoryView(msgspec.Struct, kw_only=True):
    """A whole call."""

    row: CallRow
    facts: CallFacts
    legs: list[LegView]
    questions: list[QuestionView]
    difference: Difference | None = None
    dropped: int = 0
    """Events that were not kept, because there were too many at once."""
    is_cut: bool = False
    """Whether it is too long to be shown: then only its beginning and its end are here."""
    sealed: bool = False
    """Whether the store is sealed, and was opened without the keys: then nothing can be told."""

    @property
    def workers(self) -> list[str]:
        """Those that ran it, in order."""
        return list(dict.fromkeys(leg.worker for leg in self.legs))

    @property
    def result(self) -> tuple[str, int]:
        """How it ended, as JSON, and its bytes."""
        ended = [leg for leg in self.legs if leg.result_size and leg.how != "became a task"]
        return (ended[-1].result, ended[-1].result_size) if ended else ("", 0)

    @property
    def state_bytes(self) -> int:
        """Bytes of the last state that went out."""
        return next((leg.token for leg in reversed(self.legs) if leg.token), 0)


class _Questions:
    """The questions of a story, found by name in one look: a client decides how many answers it sends."""

    def __init__(self, view: StoryView) -> None:
        self._all = view.questions
        self._by_name: dict[str, list[QuestionView]] = {}

    def add(self, question: QuestionView) -> QuestionView:
        self._all.append(question)
        for name in {question.key, _ATTEMPT.sub("", question.key)}:
            self._by_name.setdefault(name, []).append(question)
        return question

    def named(self, name: str) -> list[QuestionView]:
        """Those with this key, the oldest first. The key of a task's question has its attempt at its end."""
        return self._by_name.get(name, [])


def assembled(row: CallRow, events: Iterable[Event]) -> StoryView:
    """The story of a call."""
    view = StoryView(
        row=row, facts=decode_facts(row.facts) if row.facts else CallFacts(), legs=[], questions=[]
    )
    legs: dict[str, LegView] = {}
    questions = _Questions(view)
    for event in events:
        if event.kind == "lost_count":
            view.dropped += event.size
        elif event.kind == "leg":
            legs[event.leg] = _leg(event)
        elif (leg := legs.get(event.leg)) is not None:
            _add(view, questions, leg, event)
    view.legs = sorted(legs.values(), key=lambda leg: leg.began)
    _connect(view.legs)
    _name_answers(view)
    return view


def _name_answers(view: StoryView) -> None:
    """Call answers by what was asked."""
    words = {question.key: question.words for question in view.questions}
    words.update({key.rpartition(".")[0]: asked for key, asked in words.items()})
    for leg in view.legs:
        for mark in leg.marks:
            if mark.kind == "answer":
                mark.label = words.get(mark.key[2:], mark.label)


def label_of(name: str) -> str:
    """The name of an effect for the eye: without its digest, and without the functions around a function."""
    bare = _DIGEST.sub("", name[2:])
    return bare.rpartition(".")[2] or bare


def _leg(event: Event) -> LegView:
    facts = _read(event.value)
    return LegView(
        id=event.leg,
        worker=event.about,
        began=event.at,
        round=facts.get("round") or 1,
        fence=facts.get("fence"),
    )


def _add(view: StoryView, questions: _Questions, leg: LegView, event: Event) -> None:
    match event.kind:
        case "began":
            leg.add(_mark(event, "waiting" if event.name[:1] in "za" else "run"))
        case "done":
            _done(questions, leg, event)
        case "retried":
            _retried(leg, event.name, event)
        case "asked":
            _asked(questions, event)
        case "answered":
            _answered(questions, leg, event.name, event.value, event.size, event.at)
        case "log" | "progress":
            level = "progress" if event.kind == "progress" else event.about
            leg.lines.append(Line(event.at, level, event.value, event.size, event.name))
        case "differs":
            sides = _read(event.value)
            view.difference = Difference(*(str(sides.get(side, "")) for side in ("problem", "before", "now")))
        case "end":
            _ended(leg, event)
        case "leg" | "lost_count":
            pass


def _asked(questions: _Questions, event: Event) -> None:
    """A new question, unless it is open already: a call that is made again while it waits says it again."""
    same = questions.named(event.name)
    if not any(each.key == event.name and each.answered is None for each in reversed(same)):
        request = _read(event.value)
        questions.add(QuestionView(key=event.name, request=request, asked=event.at, who=event.about))


def _mark(event: Event, state: MarkState) -> Mark:
    kind = _KINDS.get(event.name[:1], "effect")
    return Mark(
        key=event.name, label=label_of(event.name), kind=kind, state=state, at=event.at, about=event.about
    )


def _done(questions: _Questions, leg: LegView, event: Event) -> None:
    kind, _, about = event.about.partition(" ")
    if event.name[:1] not in _KINDS or event.name.startswith("d:sleep"):
        return
    mark = leg.known.get(event.name)
    if mark is None:
        mark = leg.add(_mark(event, "run"))
        mark.about = ""
    mark.seconds, mark.value, mark.size = event.seconds, event.value, event.size
    mark.about = about or mark.about
    mark.state = "failed" if kind == "failure" else "cut" if kind == "cut" else "run"
    if mark.state == "run" and mark.tries > 1:
        mark.state = "retried"
    if kind == "answer":
        # A pushed question is answered while the leg runs.
        came = event.at if mark.at < event.at else leg.began
        _answered(questions, leg, event.name[2:], _second(event.value), event.size, came)


def _retried(leg: LegView, name: str, event: Event) -> None:
    mark = leg.known.get(name)
    if mark is not None:
        mark.tries, mark.state = mark.tries + 1, "retried"
        mark.failures.append(event.value)


def _answered(questions: _Questions, leg: LegView, name: str, answer: str, size: int, at: float) -> None:
    """The newest question of this name has its answer. That of a task has its attempt in its key."""
    same = questions.named(name)
    question = next((each for each in reversed(same) if each.answered is None), None)
    if question is None:
        if same:
            return  # It came with the request, and was told then.
        pushed = leg.known.get(f"a:{name}")
        began, words = (leg.began, "") if pushed is None else (pushed.at, pushed.about)
        question = questions.add(QuestionView(key=name, request={"params": {"message": words}}, asked=began))
    question.answered, question.answer, question.size = at, answer, size


def _ended(leg: LegView, event: Event) -> None:
    facts = _read(event.value)
    leg.ended, leg.how, leg.state = event.at, event.about, _HOW.get(event.about, "failed")
    leg.token, leg.journal = facts.get("token", 0), facts.get("journal", [])
    leg.result, leg.result_size = facts.get("result", ""), facts.get("result_size", 0)
    leg.replayed = facts.get("replayed", [])
    before = [
        Mark(key=key, label=label_of(key), kind=_KINDS[key[:1]], state="replayed", at=leg.began)
        for key in leg.replayed
        if key[:1] in _KINDS and not key.startswith("d:")
    ]
    leg.marks[:0] = before
    leg.known = {mark.key: mark for mark in before} | leg.known


def _connect(legs: Sequence[LegView]) -> None:
    """Say how long each leg waited for, and which of them lost their worker: another one has begun since."""
    for before, leg in pairwise(legs):
        if before.ended is None and not _is_beside(before, leg):
            before.how, before.state = "its worker was lost", "failed"
            for mark in before.marks:
                if mark.kind == "step" and mark.seconds is None and mark.state == "run":
                    mark.state = "cut"
        else:
            leg.waited = max(0.0, leg.began - (before.ended or leg.began))


def _is_beside(before: LegView, leg: LegView) -> bool:
    """Whether two legs run at the same time: the request that makes a task ends after the task has begun."""
    return before.fence is None and leg.fence == 1


def _read(value: str) -> dict[str, Any]:
    found: Any = _json(value) if value else {}
    return found if is_object(found) else {}


def _trouble(failure: str) -> str:
    """A failure, out of `[type, message, ...]`."""
    found: Any = _json(failure)
    if is_array(found) and len(found) >= 2:
        return ": ".join(str(part) for part in found[:2] if part)
    return failure


def _second(value: str) -> str:
    """The value of an entry, out of `[kind, value]`."""
    found: Any = _json(value) if value else None
    return msgspec.json.encode(found[1]).decode() if is_array(found) and len(found) == 2 else ""
