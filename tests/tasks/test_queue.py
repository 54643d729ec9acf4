"""Whose turn it is, decided without a store or a clock."""

import pytest

from ekiden.tasks import queue as queue_module
from ekiden.tasks.queue import Queue
from ekiden.tasks.store import Due

LEASE = 9.0


def waits(name: str, principal: str = "", due: float = 0.0) -> Due:
    return Due(name, principal, due, "queued", 0, 0)


def silent(name: str, *, losses: int = 0, fence: int = 1, due: float = 0.0) -> Due:
    return Due(name, "", due, "running", fence, losses)


def chosen(
    queue: Queue,
    found: list[Due],
    time: float = 0.0,
    *,
    room: int = 9,
    suspect: bool = False,
    idle: bool = True,
) -> str:
    taken = queue.choose(found, room=room, now=1000.0, time=time, has_suspect=suspect, is_idle=idle)
    return " ".join(taken)


def test_principals_take_turns_however_many_tasks_one_of_them_has() -> None:
    queue = Queue(LEASE, 5)
    flood = [waits(f"a{number}", "a") for number in range(5)]
    found = [*flood, waits("b0", "b"), waits("b1", "b"), waits("c0", "c")]
    assert chosen(queue, found) == "a0 b0 c0 a1 b1 a2 a3 a4"
    assert chosen(queue, found, room=4) == "c0 b0 a0 b1", "who had no turn for longest is first"


def test_somebody_new_comes_before_all_who_had_a_turn() -> None:
    queue = Queue(LEASE, 5)
    assert chosen(queue, [waits("a0", "a"), waits("b0", "b")]) == "a0 b0"
    assert chosen(queue, [waits("a1", "a"), waits("b1", "b"), waits("new", "n")], room=1) == "new"


def test_a_silent_worker_is_watched_before_its_task_is_taken_over() -> None:
    queue = Queue(LEASE, 5)
    assert chosen(queue, [silent("x")], time=10.0) == ""
    assert queue.look_again(10.0) == 1.0
    assert chosen(queue, [silent("x")], time=10.9) == ""
    assert chosen(queue, [silent("x")], time=11.0) == "x"


def test_a_silence_is_a_surprise_until_it_is_watched() -> None:
    queue = Queue(LEASE, 5)
    assert not queue.is_surprised_by([waits("a")]), "nobody holds it"
    assert queue.is_surprised_by([waits("a"), silent("x")])
    chosen(queue, [silent("x")], time=10.0)
    assert not queue.is_surprised_by([silent("x")])
    assert queue.is_surprised_by([silent("x", due=5.0)]), "that is another silence"
    queue.interrupted()
    assert queue.is_surprised_by([silent("x")])


def test_whoever_renews_meanwhile_keeps_its_task() -> None:
    queue = Queue(LEASE, 5)
    assert chosen(queue, [silent("x")], time=10.0) == ""
    assert chosen(queue, [], time=10.5) == ""
    assert queue.look_again(10.5) is None
    assert chosen(queue, [silent("x", due=5.0)], time=30.0) == "", "that is another silence"
    assert chosen(queue, [silent("x", fence=2, due=5.0)], time=40.0) == ""


def test_a_silence_does_not_count_that_began_before_the_store_was_away() -> None:
    queue = Queue(LEASE, 5)
    assert chosen(queue, [silent("x")], time=10.0) == ""
    queue.interrupted()
    assert chosen(queue, [silent("x")], time=30.0) == ""
    assert chosen(queue, [silent("x")], time=31.0) == "x"


def test_one_suspect_is_run_at_a_time() -> None:
    queue = Queue(LEASE, 5)
    found = [silent("once", losses=0), silent("twice", losses=1), silent("again", losses=1), waits("fresh")]
    assert chosen(queue, found) == "fresh"
    assert chosen(queue, found, time=5.0) == "once twice fresh"
    assert chosen(queue, found, time=5.0, suspect=True) == "once fresh"
    released = Due("released", "", 0.0, "queued", 3, 2)
    assert chosen(queue, [released], suspect=True) == "", "what was handed over is as suspect as before"


def test_a_suspect_waits_longer_after_every_loss() -> None:
    for losses, seconds in ((1, 0.0), (2, 1.0), (3, 2.0), (4, 4.0), (50, 30.0)):
        for waited, is_taken in ((seconds - 0.01, False), (seconds, True)):
            if waited >= 0:
                queue = Queue(LEASE, 5)
                found = [silent("x", losses=losses, due=1000.0 - waited)]
                chosen(queue, found)
                assert chosen(queue, found, time=5.0) == ("x" if is_taken else ""), (losses, waited)


def test_the_last_try_is_made_alone() -> None:
    queue = Queue(LEASE, 5)
    last, other = Due("last", "", 990.0, "queued", 4, 4), waits("fresh", "b", 995.0)
    assert chosen(queue, [last, other]) == "last", "nothing is taken beside it"
    assert chosen(queue, [last, other], idle=False) == "fresh", "it waits for a worker that runs nothing"
    assert chosen(Queue(LEASE, 5), [other, last]) == "fresh", "something else comes first: then it waits"
    long_overdue = Due("last", "", 960.0, "queued", 4, 4)
    assert chosen(queue, [long_overdue, other], idle=False) == "last fresh", "but not for ever"
    for due, taken in ((970.0, "last fresh"), (970.1, "fresh")):
        assert chosen(Queue(LEASE, 5), [Due("last", "", due, "queued", 4, 4), other], idle=False) == taken
    over = Due("over", "", 990.0, "queued", 5, 5)
    assert chosen(queue, [over, other], idle=False) == "over fresh", "this one is only given up"


def test_where_few_tries_are_allowed_nothing_is_isolated_from_the_start() -> None:
    queue = Queue(LEASE, 1)
    assert chosen(queue, [waits("a"), waits("b")], idle=False) == "a b"


def test_only_so_many_are_remembered_to_have_had_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_MOST_KNOWN", 2)
    queue = Queue(LEASE, 5)
    for principal in "abc":
        chosen(queue, [waits(principal, principal)])
    found = [waits(f"{principal}1", principal) for principal in "cba"]
    assert chosen(queue, found, room=1) == "a1", "a is new again, the others have just had their turn"
