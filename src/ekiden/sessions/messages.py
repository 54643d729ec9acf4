"""What processes that share sessions tell each other. `session` is always the key of one, never its id."""

from typing import TypeAlias

import msgspec

from ekiden.sessions.record import What

__all__ = [
    "Answered",
    "Cancelled",
    "Changed",
    "Ended",
    "Followed",
    "News",
    "Streamed",
    "read",
    "spell",
]


class _News(msgspec.Struct, frozen=True, array_like=True, tag=True):
    session: str


class Changed(_News, frozen=True, tag="session"):
    """The client has changed something that is remembered."""

    what: What
    value: str
    revision: int
    """Of the record in the store, which says what holds: messages of several processes may overtake each
    other."""


class Ended(_News, frozen=True, tag="ended"):
    """The session has ended."""


class Answered(_News, frozen=True, tag="answered"):
    """The answer to a question lies in the store."""

    number: int


class Cancelled(_News, frozen=True, tag="cancelled"):
    """The client has cancelled a request."""

    request: int | str


class Followed(_News, frozen=True, tag="followed"):
    """Another process reads a stream, and wants to be told of its events."""

    number: int


class Streamed(_News, frozen=True, tag="streamed"):
    """A stream that others read has new events in the store, or has ended."""

    number: int


News: TypeAlias = Changed | Ended | Answered | Cancelled | Followed | Streamed

spell = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(News).decode


def read(message: bytes) -> News | None:
    """What a message of the bus says; None if it is about something else."""
    try:
        news: News = _decode(message)
        return news
    except msgspec.MsgspecError:
        return None
