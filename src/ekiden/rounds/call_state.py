"""What a token says, before it is sealed and after it was opened. No keys, no clock."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from ekiden.rounds.asks import is_method
from ekiden.rounds.journal import Entry
from ekiden.signals import StateRefused

__all__ = ["CLOCK_SKEW", "About", "CallState", "decode_state", "encode_state", "verify"]

CLOCK_SKEW: Final = 60.0
"""Seconds by which the clocks of processes may differ."""

_BOUND: Final = ("audience", "method", "target", "arguments", "principal")

About: TypeAlias = tuple[str, str, str, bytes, str]
"""What a token was issued for, or a request is: the fields named in `_BOUND`."""


class CallState(msgspec.Struct, array_like=True, gc=False):
    """The content of a `requestState`."""

    issued: float
    expires: float
    started: float
    """When the first round began: a call has a maximum age, however many rounds it takes."""
    audience: str
    method: str
    target: str
    """The tool, the prompt or the URI."""
    arguments: bytes
    """Canonical JSON of the arguments, or `#` + fingerprint if they are long."""
    principal: str
    flow: str
    round: int
    asked: Mapping[str, str]
    """The questions that the round ended with, by key: the name of each, which has its fingerprint, and its
    first words. For a handler that returns `InputRequired`, the method of each."""
    pauses: Sequence[str]
    """The checkpoints that the round ended with."""
    journal: dict[str, Entry]
    journal_id: str | None = None
    """Where the journal is kept if it was too large to travel."""
    manual: str | None = None
    """The state that a handler wrote itself."""
    answers: dict[str, object] | None = None
    """The answers so far, for a handler that keeps its own state."""
    parked: str | None = None
    """The ticket of the parked handler that waits for this token, in one process."""
    trace: str | None = None
    """The `traceparent` of the first round: of the server's span, else of the client's."""
    paged: list[str] | None = None
    """The keys of questions that people answer on a page: what the client says to them does not count."""

    @property
    def is_by_hand(self) -> bool:
        """Whether the round ended with what its handler returned: it is called again, and repeats nothing."""
        return not self.pauses and all(map(is_method, self.asked.values()))


encode_state: Final[Callable[[CallState], bytes]] = msgspec.msgpack.Encoder().encode
"""A state as bytes to be sealed."""


decode_state: Final[Callable[[bytes], CallState]] = msgspec.msgpack.Decoder(CallState).decode
"""A state out of opened bytes; raises `msgspec.MsgspecError` if they are not one."""


def verify(state: CallState, about: About, now: float, max_age: float) -> None:
    """Refuse a token that is late, early, or was issued for anything else than this request."""
    if now > state.expires:
        raise StateRefused("expired")
    if now > state.started + max_age:
        raise StateRefused("the flow is too old")
    if state.issued > now + CLOCK_SKEW:
        raise StateRefused("issued in the future")
    if (state.audience, state.method, state.target, state.arguments, state.principal) != about:
        different = (name for name, is_ in zip(_BOUND, about, strict=True) if getattr(state, name) != is_)
        raise StateRefused(f"issued for another {next(different)}")
