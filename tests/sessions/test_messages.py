"""What processes tell each other is read as it was meant, and everything else is left alone."""

from ekiden.sessions.messages import (
    Answered,
    Cancelled,
    Changed,
    Ended,
    Followed,
    Streamed,
    read,
    spell,
)


def test_every_message_is_read_as_it_was_spelled() -> None:
    messages = [
        Changed("s", "watch", "a://é", 7),
        Ended("s"),
        Answered("s", 2**52),
        Cancelled("s", "seven"),
        Cancelled("s", 7),
        Followed("s", 3),
        Streamed("s", 3),
    ]
    assert [read(spell(message)) for message in messages] == messages


def test_what_is_not_about_sessions_is_left_alone() -> None:
    others = [b'["change","a server",{}]', b'["session","s","nonsense",""]', b"[]", b"not JSON", b'["ended"]']
    assert [read(message) for message in others] == [None] * 5
