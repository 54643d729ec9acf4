"""What each move changes in a row, and that one which a store has to make twice is made once."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from ekiden.errors import IllegalMove, LostClaim
from ekiden.rounds.journal import Entry
from ekiden.rounds.outcome import Complete
from ekiden.tasks import moves
from ekiden.tasks.moves import Ending, Suspension
from ekiden.tasks.outcomes import ending_of
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.states import State
from ekiden.testing.task_contract import new_record
from ekiden.testing.task_contract.records import question


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


# What changes

NOW: Final = 2000.0
FENCE: Final = 3
CLOSED: Final = {"questions": {}, "asked": {}, "losses": 0, "updated": NOW}
"""What changes whenever a task ends, as a client sees it."""


def row(state: State, **fields: Any) -> TaskRecord:
    """A task that has lost two workers, with an open question and an answer that was not read."""
    answered = question("b")
    answered.answered, answered.response = True, "yes"
    usual: dict[str, Any] = {"fence": FENCE, "losses": 2, "due": NOW - 1.0, "message": "so far"}
    questions = {"a.1": question("a"), "b.1": answered}
    return new_record("t", state=state, questions=questions, asked={"a": 1, "b": 1}, **{**usual, **fields})


def changed(record: TaskRecord, change: Callable[[TaskRecord], object]) -> dict[str, Any] | str:
    """The fields that a move changes; or why it does not, and then it has changed nothing."""
    before = msgspec.to_builtins(record)
    try:
        change(record)
    except (LostClaim, IllegalMove) as error:
        assert msgspec.to_builtins(record) == before
        return "lost" if isinstance(error, LostClaim) else "illegal"
    after = msgspec.to_builtins(record)
    return {name: value for name, value in after.items() if value != before[name]}


def test_a_claim_counts_the_workers_that_did_not_give_the_task_back() -> None:
    def claim(record: TaskRecord) -> None:
        moves.claim(record, now=NOW, lease=10.0)

    taken = {"fence": FENCE + 1, "due": NOW + 10.0}
    for state in ("queued", "waiting"):
        assert changed(row(state), claim) == {**taken, "state": "running"}
    for state in ("running", "tidying", "failing"):
        assert changed(row(state), claim) == {**taken, "losses": 3}
    assert changed(row("stopping"), claim) == {**CLOSED, **taken, "state": "tidying", "losses": 1}
    assert changed(row("completed"), claim) == "illegal"
    assert changed(row("queued", due=NOW), claim) == {**taken, "state": "running"}
    assert changed(row("queued", due=NOW + 0.1), claim) == "lost"
    assert changed(row("queued", due=None), claim) == "lost"


def test_a_worker_that_lives_takes_one_loss_back() -> None:
    for losses, fence, expected in ((2, 2, {"losses": 1}), (2, 3, "lost"), (0, 2, "lost")):
        assert (
            changed(row("running", losses=losses), lambda r, fence=fence: moves.survive(r, fence)) == expected
        )


def test_what_a_client_can_see_of_news_is_an_update_and_nothing_else() -> None:
    def published(**leaves: Any) -> dict[str, Any] | str:
        return changed(row("running"), lambda r: moves.publish(r, FENCE, Suspension(**leaves), now=NOW))

    assert published() == {}
    assert published(message="so far") == {}
    assert published(message="farther") == {"message": "farther", "updated": NOW}
    assert published(asked=(question("a"), question("b"))) == {}, "these were put before"
    assert published(read=("b.1", "unknown")).keys() == {"questions"}
    assert published(withdrawn=("a.1",)).keys() == {"questions", "updated"}
    again = published(asked=(question("a", 2), question("c")))
    assert isinstance(again, dict)
    assert again.keys() == {"questions", "asked", "updated"}
    assert (again["asked"], list(again["questions"])) == (
        {"a": 2, "b": 1, "c": 1},
        ["a.1", "b.1", "a.2", "c.1"],
    )
    assert (
        changed(row("running"), lambda r: moves.publish(r, 2, Suspension(message="late"), now=NOW)) == "lost"
    )
    assert changed(row("waiting"), lambda r: moves.publish(r, FENCE, Suspension(), now=NOW)) == "lost"


def test_a_leg_that_comes_to_rest_has_made_progress() -> None:
    def suspended(record: TaskRecord, fence: int = FENCE, **leaves: Any) -> dict[str, Any] | str:
        return changed(record, lambda r: moves.suspend(r, fence, Suspension(**leaves), now=NOW))

    seen, later = frozenset({"b.1"}), NOW + 50.0
    rests = {"state": "waiting", "due": later, "losses": 0}
    assert suspended(row("running"), seen=seen, wake=later) == rests
    assert suspended(row("running"), seen=seen) == {**rests, "due": None}
    assert suspended(row("running"), wake=later) == {"state": "queued", "due": NOW, "losses": 0}
    told = suspended(row("running"), seen=seen, wake=later, message="farther")
    assert told == {**rests, "message": "farther", "updated": NOW}
    assert suspended(row("waiting"), wake=later, message="twice") == {}
    assert suspended(row("waiting"), 2, wake=later) == "lost"
    assert suspended(row("stopping"), wake=later) == "lost"


def test_what_is_handed_over_is_due_at_once_or_after_a_while() -> None:
    for after, due in ((0.0, NOW), (5.0, NOW + 5.0)):
        given = changed(row("running"), lambda r, after=after: moves.release(r, FENCE, now=NOW, after=after))
        assert given == {"state": "queued", "due": due}
    assert changed(row("running"), lambda r: moves.release(r, 2, now=NOW)) == "lost"
    for state in ("stopping", "tidying", "failing"):
        given = changed(row(state, losses=2), lambda r: moves.release(r, FENCE, now=NOW))
        assert given == {"due": NOW, "losses": 1}, "its claim counts one"


def test_a_task_ends_once_and_only_by_its_owner() -> None:
    def ended(record: TaskRecord, fence: int = FENCE, **ending: Any) -> dict[str, Any] | str:
        return changed(record, lambda r: moves.finish(r, fence, Ending(**ending), now=NOW, message="over"))

    over = {**CLOSED, "due": None, "message": "over"}
    for state in ("running", "stopping"):
        done = ended(row(state), result=b"{}", tool_failed=True)
        assert done == {**over, "state": "completed", "result": "e30=", "tool_failed": True}
        assert ended(row(state), error=b"{}") == {**over, "state": "failed", "error": "e30="}
        assert ended(row(state), 2, result=b"{}") == "lost"
    assert ended(row("completed"), result=b"{}") == ended(row("failed"), error=b"{}") == {}
    assert ended(row("completed"), error=b"{}") == ended(row("failed"), result=b"{}") == "lost"
    assert ended(row("completed"), 2, result=b"{}") == "lost"


@pytest.mark.parametrize("tidy", [True, False])
def test_who_gives_a_task_up_or_stops_it_keeps_it_for_its_clean_up(tidy: bool) -> None:
    def gives_up(record: TaskRecord, fence: int = FENCE) -> None:
        moves.give_up(record, fence, b"{}", now=NOW, lease=10.0, tidy=tidy, message="why")

    def stops(record: TaskRecord, fence: int = FENCE) -> None:
        moves.stop(record, fence, now=NOW, lease=10.0, tidy=tidy)

    over = {**CLOSED, "due": NOW + 10.0 if tidy else None}
    after = "failing" if tidy else "failed"
    assert changed(row("running"), gives_up) == {**over, "state": after, "error": "e30=", "message": "why"}
    assert changed(row("stopping"), stops) == {**over, "state": "tidying" if tidy else "cancelled"}
    stopped = changed(row("failing"), stops)
    assert stopped == ({"due": NOW + 10.0} if tidy else {"state": "failed", "due": None}), (
        "it is closed already"
    )
    for change, made in ((gives_up, ("failing", "failed")), (stops, ("tidying", "cancelled", "failed"))):
        for state in made:
            assert changed(row(state), change) == {}
            assert changed(row(state), lambda r, change=change: change(r, 2)) == "lost"
        assert changed(row("waiting"), change) == "lost"


def test_a_clean_up_ends_once() -> None:
    def tidied(state: State, fence: int = FENCE) -> dict[str, Any] | str:
        return changed(row(state), lambda r: moves.tidied(r, fence))

    assert tidied("tidying") == {"state": "cancelled", "due": None}
    assert tidied("failing") == {"state": "failed", "due": None}
    assert tidied("cancelled") == tidied("failed") == {}
    assert (
        tidied("tidying", 2) == tidied("cancelled", 2) == tidied("running") == tidied("completed") == "lost"
    )


def test_an_answer_counts_for_an_open_question_while_somebody_can_read_it() -> None:
    def answered(record: TaskRecord, *keys: str) -> tuple[dict[str, Any] | str, tuple[str, ...]]:
        kept: list[tuple[str, ...]] = []
        made = changed(record, lambda r: kept.append(moves.answer(r, dict.fromkeys(keys, "no"), now=NOW)))
        return made, kept[0]

    for state, also in (("waiting", {"state": "queued", "due": NOW}), ("queued", {}), ("running", {})):
        record = row(state)
        made, kept = answered(record, "a.1", "b.1", "unknown")
        assert isinstance(made, dict)
        assert kept == ("a.1",)
        assert {name: made[name] for name in made if name != "questions"} == {**also, "updated": NOW}
        assert [(q.answered, q.response) for q in record.questions.values()] == [(True, "no"), (True, "yes")]
        assert answered(row(state), "b.1", "unknown") == ({}, ())
    for state in ("stopping", "tidying", "failing", "completed"):
        assert answered(row(state), "a.1") == ({}, ())
    assert moves.unread(row("running"), ()) == {"b.1": "yes"}
    assert moves.unread(row("running"), ("b.1", "a.1")) == {}


def test_only_a_task_that_waits_is_woken_and_only_as_it_was_seen() -> None:
    woken = {"state": "queued", "due": NOW, "updated": NOW}
    assert changed(row("waiting"), lambda r: moves.wake(r, FENCE, now=NOW)) == woken
    assert changed(row("waiting"), lambda r: moves.wake(r, 2, now=NOW)) == "lost"
    assert changed(row("running"), lambda r: moves.wake(r, FENCE, now=NOW)) == "lost"


@pytest.mark.parametrize("tidy", [True, False])
def test_what_waits_is_over_when_it_is_cancelled_and_what_runs_is_told(tidy: bool) -> None:
    def cancelled(state: State, message: str | None = None) -> tuple[dict[str, Any] | str, bool]:
        said: list[bool] = []
        made = changed(
            row(state), lambda r: said.append(moves.cancel(r, now=NOW, tidy=tidy, message=message))
        )
        return made, said[0]

    state, due = ("tidying", NOW) if tidy else ("cancelled", None)
    for before in ("queued", "waiting"):
        assert cancelled(before) == ({**CLOSED, "state": state, "due": due}, True)
    assert cancelled("running") == ({"state": "stopping"}, True)
    assert cancelled("running", "why") == ({"state": "stopping", "message": "why"}, True)
    assert cancelled("stopping") == ({}, True)
    for before in ("tidying", "failing", "completed", "failed", "cancelled"):
        assert cancelled(before, "too late") == ({}, False)


def test_a_task_whose_time_is_over_fails_from_that_moment_on_and_its_worker_keeps_it() -> None:
    def expired(record: TaskRecord, now: float = NOW) -> tuple[dict[str, Any] | str, bool]:
        said: list[bool] = []
        made = changed(record, lambda r: said.append(moves.expire(r, b"{}", now=now, message="over")))
        return made, said[0]

    over = {**CLOSED, "error": "e30=", "message": "over", "expired": True, "state": "failing"}
    for state in ("queued", "waiting", "running", "stopping"):
        due = {} if state in ("running", "stopping") else {"due": NOW}
        assert expired(row(state, ttl=NOW - 1000.0)) == ({**over, **due}, True)
        assert expired(row(state, ttl=NOW - 1000.0), NOW - 0.1) == ({}, False)
        assert expired(row(state, ttl=None)) == ({}, False)
    for state in ("tidying", "failing", "completed", "failed", "cancelled"):
        assert expired(row(state, ttl=1.0)) == ({}, False)
