"""The row of a task: all that is known of it but its journal."""

from typing import Any

import msgspec

from ekiden.rounds.asks import Person
from ekiden.tasks.states import FINAL, State, Status

__all__ = ["Question", "TaskRecord", "decode_record", "encode_record"]


class Question(msgspec.Struct, array_like=True):
    """A question of a task that was put to the client."""

    name: str
    """Its name in the journal."""
    attempt: int
    """How often it was put. If an answer cannot be used, the question is put again, under a new key."""
    digest: str
    request: dict[str, Any]
    """The input request as the client sees it."""
    answered: bool = False
    response: Any = None
    """The answer as it came. The handler has not read it yet."""
    paged: bool = False
    """Whether a person answers it on a page: the client sees that the task waits, and cannot answer."""
    person: Person | None = None
    """Who is asked there; None: whoever made the call."""

    @property
    def key(self) -> str:
        """Its key on the wire. No key is used twice in the life of a task."""
        return f"{self.name}.{self.attempt}"


class TaskRecord(msgspec.Struct, kw_only=True):
    """One task. Times are seconds since the epoch."""

    id: str
    flow: str
    """The call that became this task; one call becomes at most one."""
    answers: str
    """Fingerprint of what was answered before: a repeat of the call with other answers is refused."""
    audience: str
    """The server whose task this is, where several share a store."""
    tool: str
    principal: str
    arguments: dict[str, Any]
    meta: dict[str, Any]
    """The `_meta` of the request that became the task. Its capabilities count for the whole task."""
    started: float
    """When the call began."""
    created: float
    updated: float
    ttl: float | None
    """Seconds from `created`, after which the task fails, and may be forgotten."""
    poll: float | None
    """Seconds that a client should wait between two polls."""
    state: State = "queued"
    fence: int = 0
    """Grows with every claim: a runner that has lost its claim cannot change anything."""
    due: float | None = None
    """From when on a worker may claim it: the time to wake, or the end of the runner's lease."""
    losses: int = 0
    """Workers that it lost in a row without any progress. A task whose workers keep dying is given up."""
    message: str | None = None
    questions: dict[str, Question] = msgspec.field(default_factory=dict[str, Question])
    """By the key of the wire: those that are open, and answers that the handler has not read yet."""
    asked: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """The last attempt at each question that was ever put."""
    result: bytes | None = None
    """The final result, as JSON."""
    error: bytes | None = None
    """The final error, as JSON."""
    tool_failed: bool = False
    """Whether the final result says that the tool failed (`isError`). The task has completed all the same."""
    expired: bool = False
    trace: str | None = None
    """The `traceparent` of the request that became the task, where that was traced."""
    version: int = 0
    """Grows with every change, if the store uses it: a writer names the version that it has read."""

    @property
    def final(self) -> bool:
        """Whether it has ended, as far as a client can tell."""
        return self.state in FINAL or self.state in ("tidying", "failing")

    @property
    def status(self) -> Status:
        """What a client sees."""
        if self.state == "tidying":
            return "cancelled"
        if self.state == "failing":
            return "failed"
        if self.state == "completed" or self.state == "failed" or self.state == "cancelled":
            return self.state
        return "working" if self.open_questions() == {} else "input_required"

    @property
    def expires(self) -> float | None:
        """When its time is over."""
        return None if self.ttl is None else self.created + self.ttl

    def open_questions(self) -> dict[str, Question]:
        """The questions to the client that are not answered yet."""
        return {key: asked for key, asked in self.questions.items() if not (asked.answered or asked.paged)}

    def paged_questions(self) -> dict[str, Question]:
        """The questions to people that are not answered yet."""
        return {key: asked for key, asked in self.questions.items() if asked.paged and not asked.answered}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TaskRecord).decode


def encode_record(record: TaskRecord) -> bytes:
    """A record as bytes."""
    return _encode(record)


def decode_record(data: bytes) -> TaskRecord:
    """A record out of its bytes."""
    return _decode(data)
