"""What a server tells of one call while it answers one request of it, or runs one leg of its task."""

import os
import secrets
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from itertools import islice
from typing import Any, Final

import msgspec

from ekiden.errors import NonDeterminismError
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome, Suspended, Task
from ekiden.rounds.replay import Replay
from ekiden.stories.events import (
    CallFacts,
    CallRow,
    CallStatus,
    Event,
    EventKind,
    Recording,
    encode_facts,
    shown,
)
from ekiden.stories.recorder import Recorder
from ekiden.wire.json import JsonObject

__all__ = ["CallTold", "Story", "current_story"]

current_story: ContextVar["Story | None"] = ContextVar("current_story", default=None)
"""The story of the request or leg that the current task works for; None if nothing is recorded."""

_MOST_LISTED: Final = 500
"""Entries of a journal that the end of a leg lists."""
_MOST_ANSWERS: Final = 100
"""Answers of one request: a client may send any number, also to what was not asked."""
_LONGEST_TARGET: Final = 500
"""Characters. Databases do not index much longer ones."""
_LONGEST_NAME: Final = 200
"""Characters of what a client calls itself, and of its trace."""
_FACT: Final = Recording(value_bytes=4096)
"""For what a client declares: a row has no bound beside those of its parts."""
_HOST: Final = socket.gethostname()
_ALL: Final = Recording(value_bytes=1024 * 1024)
"""For what is not a value of the call: numbers and names."""


class CallTold(msgspec.Struct, kw_only=True):
    """What a request says of its call."""

    method: str
    target: str
    principal: str
    arguments: Mapping[str, Any]
    client: str
    era: str
    capabilities: dict[str, Any]
    trace: str = ""
    flow: str = ""
    """If it is known already: a leg of a task."""
    task: str = ""
    responses: Mapping[str, Any] = {}
    """The answers that came with the request, by key."""
    started: float | None = None


class Story:
    """One request of a call, or one leg of a task. Implements `ekiden.rounds.interpreter.Watcher`."""

    __slots__ = (
        "_began",
        "_facts",
        "_fence",
        "_is_held",
        "_is_over",
        "_is_shown",
        "_journal",
        "_known",
        "_leg",
        "_next",
        "_recorder",
        "_responses",
        "_row",
        "_since",
        "_waits",
        "has_legs",
    )

    def __init__(self, recorder: Recorder, told: CallTold) -> None:
        self._recorder = recorder
        now = recorder.now()
        arguments, size = shown(told.arguments, recorder.recording)
        capabilities = told.capabilities if shown(told.capabilities, _FACT)[0] else {}
        client, trace = told.client[:_LONGEST_NAME], told.trace[:_LONGEST_NAME]
        self._facts = CallFacts(arguments, size, client, told.era, capabilities, trace)
        self._row = CallRow(
            id=told.flow or secrets.token_hex(12),
            audience=recorder.audience,
            method=told.method,
            target=told.target[:_LONGEST_TARGET],
            principal=told.principal,
            started=now if told.started is None else told.started,
            updated=now,
            state="task" if told.task else "running",
            task=told.task,
        )
        self._leg = secrets.token_hex(4)
        self._responses: Mapping[str, Any] = told.responses
        self._since = now
        self._began: dict[str, float] = {}
        """When the effects that run right now began."""
        self._journal: Journal | None = None
        self._known: frozenset[str] = frozenset()
        self._fence: int | None = None
        self._is_shown = self._is_over = self._is_held = False
        self.has_legs = False
        """Whether its handler has begun to run."""
        self._waits: Mapping[str, tuple[JsonObject, str]] = {}
        """Questions that people answer elsewhere, and whom they are put to; the client has only words."""
        self._next: Story | None = None
        """The next round of the call, if the handler was parked: what it says goes there."""

    @property
    def recorder(self) -> Recorder:
        """Where it is kept."""
        return self._recorder

    # From its request to its end

    def belongs_to(self, flow: str, round_number: int, started: float) -> None:
        """Which call this is a round of. Told before anything else."""
        self._is_held = False
        self._row.id, self._row.started, self._facts.rounds = flow, started, round_number + 1

    def hold(self) -> None:
        """It is still to be found out which call this is a round of: until then it is not shown early."""
        self._is_held = True

    def show_early(self) -> None:
        """Let it be seen before its handler has told anything, if it is known which call this is."""
        if not self._is_held:
            self.show()

    def show(self) -> None:
        """Let it be seen, also if its handler does nothing that is told."""
        if not self._is_shown:
            self._is_shown = True
            facts = {"round": self._facts.rounds, "known": len(self._known), "fence": self._fence}
            value, size = shown(facts, _ALL)
            self._tell("leg", about=f"{_HOST} {os.getpid()}", value=value, size=size, at=self._since)
            self._tell_answers()

    def _tell_answers(self) -> None:
        """Tell of the answers that came with the request; of those beyond a limit, only how many."""
        for key, response in islice(self._responses.items(), _MOST_ANSWERS):
            value, size = shown(response, self._recorder.recording)
            self._tell("answered", key[:_LONGEST_TARGET], value=value, size=size, at=self._since)
        if len(self._responses) > _MOST_ANSWERS:
            self._tell("lost_count", size=len(self._responses) - _MOST_ANSWERS, at=self._since)
        self._responses = {}

    def leg(self, replay: Replay | None = None, fence: int | None = None) -> None:
        """The handler begins to run, over this journal; where there is none, nothing is replayed."""
        if self.has_legs and not self._is_over:
            self._end("begun again")
            self._since, self._is_shown = self._recorder.now(), False
        self.has_legs, self._is_over, self._fence = True, False, fence
        if replay is not None:
            if isinstance(replay.watcher, Story) and replay.watcher is not self:
                replay.watcher.goes_on_in(self)
            replay.watcher = self
            self._journal, self._known = replay.journal, frozenset(replay.journal.entries)
        self.show()

    def waits_for(self, asked: Mapping[str, tuple[JsonObject, str]]) -> None:
        """The call waits for people: what they are asked, and who, by key. The result only says so."""
        self._waits = asked

    def goes_on_in(self, following: "Story") -> None:
        """The handler was parked, and runs on in the round that `following` tells of."""
        self._next = following

    def ended(self, outcome: Outcome | Suspended) -> None:
        """How the request was answered, or the leg of the task ended."""
        self.show()
        if self._waits:
            for key, (request, who) in self._waits.items():
                self._ask(key, request, who)
            how = "asked" if self.has_legs else "no answer yet"
            self._close("waiting", how, value=_words_of(outcome))
        elif isinstance(outcome, Interim):
            for key, request in outcome.requests.items():
                self._ask(key, request)
            self._close("waiting", "asked" if outcome.requests else "checkpoint", len(outcome.state or ""))
        elif isinstance(outcome, Suspended):
            for key, ask in outcome.asks.items():
                self._ask(key, ask.request(), "" if ask.person is None else ask.person.name)
            self._close("task", "asked" if outcome.asks else "sleeping")
        elif isinstance(outcome, Task):
            self._row.task = outcome.task.task_id
            self._close("task", "became a task", value=outcome.task.task_id)
        elif isinstance(outcome, Failed):
            self._close("failed", "failed", value=_words_of(outcome))
        else:
            self._completed(outcome)

    def _completed(self, outcome: Complete) -> None:
        result = outcome.as_dict()
        failed = result.get("isError") is True
        self._close(
            "tool_failed" if failed else "completed", "tool failed" if failed else "completed", value=result
        )

    def broke_off(self, why: str) -> None:
        """It ended without an outcome: the client has cancelled it, or another worker has taken it over."""
        self.show()
        self._close("failed", why)

    def _ask(self, key: str, request: object, who: str = "") -> None:
        value, size = shown(request, self._recorder.recording)
        self._tell("asked", key, about=who, value=value, size=size)

    def _close(self, state: CallStatus, how: str, token: int = 0, value: object = None) -> None:
        if not self._row.task:
            self._row.state = state
        self._end(how, token, value)

    def _end(self, how: str, token: int = 0, value: object = None) -> None:
        """The leg is over. `token` is the size of the state that goes out."""
        entries, unseen = ({}, {}) if self._journal is None else (self._journal.entries, self._journal.unseen)
        kept = [
            [key, entry.kind, entry.digest, entry.branch, shown(entry.value, _ALL)[1]]
            for key, entry in list(entries.items())[:_MOST_LISTED]
        ]
        replayed = [key for key in entries if key in self._known and key not in unseen][:_MOST_LISTED]
        spelled, size = ("", 0) if value is None else shown(value, self._recorder.recording)
        facts = {
            "token": token,
            "journal": kept,
            "replayed": replayed,
            "result": spelled,
            "result_size": size,
        }
        self._tell("end", seconds=self._recorder.now() - self._since, about=how, value=shown(facts, _ALL)[0])

    # What its handler does

    def began(self, name: str, about: str) -> None:
        """A step, a sleep or a pushed question begins."""
        self._began[name] = self._recorder.now()
        self._tell("began", name, about=self._kept(about))

    def done(self, name: str, entry: Entry) -> None:
        """The journal has a new entry, or would have it if there were one."""
        began = self._began.pop(name, None)
        seconds = None if began is None else self._recorder.now() - began
        value, size = shown([entry.kind, entry.value], self._recorder.recording)
        about = f"{entry.kind} {self._kept(entry.about)}".strip()
        self._tell("done", name, seconds, about, value, size)

    def retried(self, name: str, entry: Entry) -> None:
        """A try of a step has failed, and there will be another."""
        if self._is_over and self._next is not None:
            self._next.retried(name, entry)
            return
        value, size = shown(entry.value, self._recorder.recording)
        self._tell("retried", name, about=self._kept(entry.about), value=value, size=size)

    def differs(self, error: NonDeterminismError) -> None:
        """The handler does not do what it did in its earlier legs."""
        sides = {"problem": str(error), "before": error.before, "now": error.now}
        value, size = shown(sides, self._recorder.recording)
        self._tell("differs", value=value, size=size)

    def said(self, kind: EventKind, about: str, data: object, logger: str = "") -> None:
        """A log line, or how far it is.

        What comes after the end of the leg belongs to the next round, if the handler was parked: it runs in
        the task of the first one. Otherwise it belongs to nothing.
        """
        if self._is_over:
            if self._next is not None:
                self._next.said(kind, about, data, logger)
            return
        value, size = shown(data, self._recorder.recording)
        words = self._kept(about) if kind == "progress" else about
        self._tell(kind, logger, about=words, value=value, size=size)

    def _kept(self, words: str) -> str:
        """Words that may hold a value: the arguments of a step, a question, a message of progress."""
        return words if self._recorder.recording.values else ""

    def _tell(
        self,
        kind: EventKind,
        name: str = "",
        seconds: float | None = None,
        about: str = "",
        value: str = "",
        size: int = 0,
        at: float | None = None,
    ) -> None:
        now = self._recorder.now() if at is None else at
        self._row.updated = now
        self._row.facts = encode_facts(self._facts)
        if (hide := self._recorder.hide) is not None:
            about, value = hide(about), hide(value)
        event = Event(now, kind, self._leg, name, seconds, about, value, size)
        self._recorder.keep(self._row, event)
        if kind == "end":
            self._leg, self._is_over = secrets.token_hex(4), True


def _words_of(outcome: Outcome | Suspended) -> object:
    """What the client is told."""
    if isinstance(outcome, Failed):
        return {"code": outcome.error.code, "message": outcome.error.message}
    return outcome.as_dict() if isinstance(outcome, Complete) else None
