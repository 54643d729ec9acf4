"""What is remembered of a session changes only where it must."""

from ekiden.sessions.record import MOST_WATCHED, SessionRecord, apply, decode_session, encode_session


def record() -> SessionRecord:
    return SessionRecord("2025-11-25", {"roots": {}}, {"name": "a client"}, "info")


def test_each_change_is_a_change_once() -> None:
    session = record()
    changes = [("initialized", ""), ("listened", ""), ("level", "error"), ("watch", "a://1")]
    assert [apply(session, what, value) for what, value in changes] == [True] * 4  # type: ignore[arg-type]
    assert [apply(session, what, value) for what, value in changes] == [False] * 4  # type: ignore[arg-type]
    assert (session.initialized, session.listened, session.log_level) == (True, True, "error")
    assert session.watched == ["a://1"]
    assert apply(session, "unwatch", "a://1")
    assert not apply(session, "unwatch", "a://1")
    assert session.watched == []
    assert session.revision == 5


def test_the_stream_that_was_opened_last_is_the_current_one() -> None:
    session = record()
    assert [apply(session, "listened", name) for name in ("one", "other", "one")] == [True] * 3
    assert (session.listener, session.revision) == ("one", 3)


def test_a_session_watches_a_limited_number_of_resources() -> None:
    session = record()
    for number in range(MOST_WATCHED):
        assert apply(session, "watch", f"a://{number}")
    assert not apply(session, "watch", "a://one too many")
    assert len(session.watched) == MOST_WATCHED


def test_a_record_comes_back_as_it_was() -> None:
    session = record()
    apply(session, "watch", "a://1")
    assert decode_session(encode_session(session)) == session
    assert record().watched == []
