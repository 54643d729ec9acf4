"""What is remembered of a session between its requests, and how it changes. Reads no clock, does no I/O."""

from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec

__all__ = [
    "MOST_WATCHED",
    "MOST_WATCHED_BYTES",
    "SessionRecord",
    "What",
    "apply",
    "decode_session",
    "encode_session",
]

What: TypeAlias = Literal["initialized", "level", "listened", "unwatch", "watch"]
"""What a client has changed: it is ready, its log level, it has opened a stream for changes, or a resource
that it subscribes to."""


MOST_WATCHED: Final = 1000
"""Resources that one session may subscribe to."""
MOST_WATCHED_BYTES: Final = 128 * 1024
"""Bytes of their URIs together."""


class SessionRecord(msgspec.Struct):
    """One session."""

    version: str
    capabilities: dict[str, Any]
    client_info: dict[str, Any]
    log_level: str
    initialized: bool = False
    listened: bool = False
    """Whether the client has had a stream for changes. If not, it cannot have missed any."""
    watched: list[str] = []


def apply(record: SessionRecord, what: What, value: str) -> bool:
    """Change a record; whether it was another before."""
    if what == "initialized" or what == "listened":
        before: bool = getattr(record, what)
        setattr(record, what, True)
        return not before
    if what == "level":
        before_level, record.log_level = record.log_level, value
        return before_level != value
    if what == "watch":
        if value in record.watched or len(record.watched) >= MOST_WATCHED:
            return False
        record.watched.append(value)
        return True
    if what == "unwatch":
        if value not in record.watched:
            return False
        record.watched.remove(value)
        return True
    assert_never(what)


encode_session = msgspec.msgpack.Encoder().encode
decode_session = msgspec.msgpack.Decoder(SessionRecord).decode
