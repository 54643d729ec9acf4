"""The records of a story: one row for each call, and what happened in it, event by event."""

from typing import Any, Final, Literal, TypeAlias

import msgspec

__all__ = [
    "Action",
    "CallFacts",
    "CallRow",
    "CallStatus",
    "Event",
    "EventKind",
    "Recording",
    "decode_events",
    "decode_facts",
    "encode_events",
    "encode_facts",
    "shown",
]

CallStatus: TypeAlias = Literal["running", "waiting", "completed", "tool_failed", "failed", "task"]
"""`waiting` is for answers of the client; a call that became a `task` goes on there."""

EventKind: TypeAlias = Literal[
    "leg", "answered", "began", "done", "retried", "asked", "log", "progress", "differs", "end", "lost_count"
]
"""`leg` is where a worker begins to run the handler, and `end` how that ended. `began` and `done` are an
effect: a step, a question, a sleep. `retried` is a try of a step that failed and is repeated; `asked` a
question that goes out, `answered` an answer that a client has sent; `differs` a replay that does something
else. `lost_count` says how many events were dropped because there were too many at once."""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept of what happens to calls. Those that were quiet for longest are forgotten first."""

    calls: int = 10_000
    """Calls that are kept."""
    bytes: int = 64 * 1024 * 1024
    """Bytes of all their events together."""
    keep_seconds: float = 7 * 86_400.0
    """How long a call is kept after the last that happened in it."""
    values: bool = True
    """Whether arguments, answers, results, log lines and values of steps are kept; if not, their sizes."""
    value_bytes: int = 16 * 1024
    """The longest of them that is kept. Of a longer one only its size is."""


class Event(msgspec.Struct, array_like=True):
    """Something that happened in a leg."""

    at: float
    kind: EventKind
    leg: str
    """Which leg of the call, by an id of its own."""
    name: str = ""
    """The effect as the journal names it; for a log line its logger, for a question its key."""
    seconds: float | None = None
    about: str = ""
    """In words: the worker of a leg, how it ended, the function of a step, the level of a log line."""
    value: str = ""
    """JSON; empty if there is none, or it was too long to be kept."""
    size: int = 0
    """The bytes of the value, also if it was not kept."""


class CallRow(msgspec.Struct, kw_only=True):
    """One call. Times are seconds since the epoch."""

    id: str
    """That of its flow, which its token and its task have, too."""
    audience: str
    """The server."""
    method: str
    target: str
    """The tool, the prompt or the URI."""
    principal: str
    started: float
    updated: float
    state: CallStatus
    task: str = ""
    """The id of the task that it became."""
    size: int = 0
    """Bytes of its events. A writer gives those that it adds."""
    facts: bytes = b""
    """`CallFacts`, encoded."""


class CallFacts(msgspec.Struct, array_like=True):
    """What else is known of a call from its request."""

    arguments: str = ""
    """JSON."""
    arguments_size: int = 0
    client: str = ""
    era: str = ""
    """The version of the protocol."""
    capabilities: dict[str, Any] = {}
    trace: str = ""
    """The `traceparent` of the first round."""
    rounds: int = 1


class Action(msgspec.Struct, array_like=True):
    """Something that a person did on a page: a row of the audit log."""

    at: float
    who: str
    what: str
    """`cancel`, `wake`, `answer`, `run again`, `values shown`."""
    task: str
    outcome: str
    """What came of it, in words."""
    about: str = ""


encode_events: Final = msgspec.msgpack.Encoder().encode
decode_events: Final = msgspec.msgpack.Decoder(list[Event]).decode
encode_facts: Final = msgspec.msgpack.Encoder().encode
decode_facts: Final = msgspec.msgpack.Decoder(CallFacts).decode

_json: Final = msgspec.json.Encoder(enc_hook=repr).encode


def shown(value: Any, recording: Recording) -> tuple[str, int]:
    """A value as JSON, empty if it is not kept, and how many bytes it has."""
    try:
        spelled = _json(value)
    except (TypeError, ValueError, RecursionError):
        spelled = _json(repr(value))
    keeps = recording.values and len(spelled) <= recording.value_bytes
    return (spelled.decode(errors="replace") if keeps else ""), len(spelled)
