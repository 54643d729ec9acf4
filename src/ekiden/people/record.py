"""A question to a person, and a call that waits for one, as they are kept."""

from typing import Any, Literal, TypeAlias

import msgspec

__all__ = ["Inquiry", "InquiryState", "WaitingCall", "decode_call", "decode_inquiry", "encode"]

InquiryState: TypeAlias = Literal["open", "answered", "withdrawn"]


class Inquiry(msgspec.Struct, kw_only=True):
    """A question that is answered on a page. Times are seconds since the epoch."""

    key: str
    """The key of the question in its call."""
    digest: str
    """Fingerprint of the question: an answer counts for this very question only."""
    attempt: int
    """How often it was put. An answer that the handler cannot use is asked for again."""
    params: dict[str, Any]
    """The question as the protocol spells it: message, and a schema or a URL."""
    method: str
    target: str
    """The tool, prompt or resource that asks."""
    principal: str
    """For whom the call is made."""
    client: str
    """The client that made the call, in its own words."""
    asked: float
    persons: list[str]
    """Who is asked, and to whom it goes next if nobody answers in time. Empty: whoever made the call."""
    turn: int = 0
    """Whose turn it is, as an index of `persons`."""
    since: float = 0.0
    """Since when it is that person's turn."""
    reminded: int = 0
    """How often that person was reminded."""
    remind: float | None = None
    """Seconds between two reminders."""
    deadline: float | None = None
    """Seconds that each person has."""
    default: dict[str, Any] | None = None
    """The answer if nobody answers in time; without one, that is a decline."""
    links: list[str] = msgspec.field(default_factory=list[str])
    """Hashes of the links that open it."""
    newest: str = ""
    """The newest link, sealed with the server's keys: it has to be shown again."""
    untold_until: float | None = None
    """When the person is told, unless that is done by then; None if it is done, or needs not be."""
    state: InquiryState = "open"
    answer: dict[str, Any] | None = None
    """As a client would give it: `action`, and `content`."""
    answered_by: str = ""
    answered: float = 0.0
    task: str | None = None
    """The task that waits for it; None if a call in rounds does."""
    wire_key: str = ""
    """Under which key the task expects the answer."""
    delivered: bool = False
    """Whether the task has been told."""

    @property
    def person(self) -> str:
        """Whose turn it is; empty: whoever made the call."""
        return self.persons[self.turn] if self.persons else ""


class WaitingCall(msgspec.Struct, kw_only=True):
    """A call in rounds that waits for people. The same call, made again, goes on with this state."""

    flow: str
    round: int
    state: bytes
    """The state of the call, encoded."""


_encode = msgspec.msgpack.Encoder().encode
_inquiry = msgspec.msgpack.Decoder(Inquiry).decode
_call = msgspec.msgpack.Decoder(WaitingCall).decode


def encode(record: Inquiry | WaitingCall) -> bytes:
    """A record as bytes."""
    return _encode(record)


def decode_inquiry(data: bytes) -> Inquiry:
    """A question out of its bytes."""
    return _inquiry(data)


def decode_call(data: bytes) -> WaitingCall:
    """A waiting call out of its bytes."""
    return _call(data)
