"""Moves that a store may have to make twice, and what they say to the client."""

from ekiden.tasks import moves
from ekiden.testing.task_contract import new_record


def test_who_cancels_may_say_why() -> None:
    record = new_record("t1")
    assert moves.cancel(record, now=5.0, tidy=False, message="not wanted")
    assert (record.status, record.message) == ("cancelled", "not wanted")
    assert not moves.cancel(record, now=6.0, tidy=False, message="too late")
    assert record.message == "not wanted"


def test_giving_up_twice_is_giving_up_once() -> None:
    record = new_record("t1")
    moves.claim(record, now=1001.0, lease=10.0)
    for now in (1002.0, 1003.0):
        moves.give_up(record, 1, b"{}", now=now, lease=10.0, tidy=True, message=f"at {now}")
        assert (record.state, record.message, record.updated) == ("failing", "at 1002.0", 1002.0)
