"""Moves that a store may have to make twice, and what they say to the client."""

from ekiden.rounds.journal import Entry
from ekiden.rounds.outcome import Complete
from ekiden.tasks import moves
from ekiden.tasks.outcomes import ending_of
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


def test_stopping_twice_is_stopping_once() -> None:
    for tidy, states in ((True, "tidying"), (False, "cancelled")):
        record = new_record("t1")
        moves.claim(record, now=1001.0, lease=10.0)
        assert moves.cancel(record, now=1002.0, tidy=tidy)
        for now in (1003.0, 1004.0):
            moves.stop(record, 1, now=now, lease=10.0, tidy=tidy)
            assert (record.state, record.updated) == (states, 1003.0)
        assert record.due == (1013.0 if tidy else None)


def test_what_is_woken_has_slept_and_may_try_again_at_once() -> None:
    until, over = Entry("draw", "", 9000.0), Entry("slept", "", None)
    entries = {
        "d:sleep": until,
        "z:sleep": over,
        "d:sleep-2": until,
        "d:sleep:nap": until,
        "d:sleep-1.5": until,
        "d:now": until,
        "r:pay": Entry("again", "digest", [2, 9000.0], 3),
        "r:ship": Entry("again", "digest", [1, 10.0]),
    }
    added = moves.woken(entries, now=1000.0)
    assert list(added) == ["z:sleep-2", "z:nap", "z:sleep-1.5", "r:pay"]
    assert added["r:pay"] == Entry("again", "digest", [2, 1000.0], 3)
    assert {added[key].kind for key in list(added)[:3]} == {"slept"}


def test_a_task_whose_tool_failed_has_completed_and_says_so() -> None:
    record = new_record("t1")
    moves.claim(record, now=1001.0, lease=10.0)
    ending = ending_of(Complete({"content": [], "isError": True}), 1000)
    moves.finish(record, 1, ending, now=1002.0)
    assert (record.status, record.tool_failed) == ("completed", True)
    assert not ending_of(Complete({"content": [], "isError": False}), 1000).tool_failed
