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
"""What a client has changed: it is ready, its log level, it has opened a stream for changes (which has this
name), or a resource that it subscribes to."""


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
    listener: str = ""
    """Which of its streams for changes is the current one: the one that was opened last."""
    revision: int = 0
    """How often it has changed. Of two that were read, the one with more is newer."""


def apply(record: SessionRecord, what: What, value: str) -> bool:
    """Change a record; whether it was another before."""
    is_another = _apply(record, what, value)
    record.revision += is_another
    return is_another


def _apply(record: SessionRecord, what: What, value: str) -> bool:
    if what == "initialized":
        was_ready, record.initialized = record.initialized, True
        return not was_ready
    if what == "listened":
        before = record.listened, record.listener
        record.listened, record.listener = True, value
        return before != (True, value)
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
