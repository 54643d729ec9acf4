"""The contract of a store of tasks: steps, questions, answers, and the ways in which a task ends."""

from ekiden.errors import LostClaim
from ekiden.rounds.journal import Entry
from ekiden.tasks.moves import Ending, Suspension
from ekiden.tasks.store import ABANDONED_SECONDS
from ekiden.testing.task_contract.opening import OpensTaskStore
from ekiden.testing.task_contract.records import claimed, due_ids, new_record, question, step

__all__ = ["LegsContract"]


class LegsContract(OpensTaskStore):
    """What a leg commits, and what others do to its task."""

    # A leg and its end

    async def test_steps_are_added_in_order(self) -> None:
        """And a journal that is written twice is the same as one that is written once."""
        async with self.opened() as (one, other):
            held = await claimed(one, new_record())
            for number in (3, 1, 2):
                assert await one.append("task", held.fence, {f"s:{number}": step(number)}) == "running"
            assert await one.append("task", held.fence, {"s:2": step(2)}) == "running"
            assert list(await other.entries("task")) == ["s:3", "s:1", "s:2"]
            assert await one.append("task", held.fence, {"s:3": step(3)}) == "running"
            assert list(await other.entries("task")) == ["s:1", "s:2", "s:3"], (
                "what is added again comes last"
            )

    async def test_questions_wait_for_answers(self) -> None:
        """A task that waits is due as soon as one came, and unknown keys are ignored."""
        async with self.opened() as (one, other):
            held = await claimed(one, new_record())
            leaves = Suspension(asked=(question("a"), question("b")))
            await one.suspend("task", held.fence, leaves, {"d:now": step(1)}, now=1001.0)
            waiting = await other.load("task")
            assert waiting is not None
            assert (waiting.state, waiting.status, waiting.due) == ("waiting", "input_required", None)
            assert list(waiting.open_questions()) == ["a.1", "b.1"]
            assert await other.answer("task", {"a.1": {"roots": []}, "x": 1}, now=1002.0) == ("a.1",)
            assert await other.answer("task", {"a.1": "again"}, now=1003.0) == ()
            queued = await one.load("task")
            assert queued is not None
            assert (queued.state, queued.status, queued.due) == ("queued", "input_required", 1002.0)
            assert queued.questions["a.1"].response == {"roots": []}
            assert await other.answer("another", {"a.1": 1}, now=1002.0) == ()

    async def test_an_answer_that_the_leg_did_not_see_makes_the_taskdue_ids(self) -> None:
        """One that it saw and did not want does not."""
        async with self.opened() as (one, other):
            held = await claimed(one, new_record())
            leaves = Suspension(asked=(question("a"), question("b")))
            await one.publish("task", held.fence, leaves, {}, now=1001.0)
            assert await other.answer("task", {"a.1": 1}, now=1002.0) == ("a.1",)
            after = await one.suspend("task", held.fence, Suspension(), {}, now=1003.0)
            assert (after.state, after.due) == ("queued", 1003.0)
            again = await one.claim("task", now=1003.0, lease=10.0)
            assert again is not None
            seen = Suspension(seen=frozenset({"a.1"}), wake=1050.0)
            after = await one.suspend("task", again.fence, seen, {}, now=1004.0)
            assert (after.state, after.due) == ("waiting", 1050.0)
            assert await due_ids(other, 1049.0, 1) == []
            assert await due_ids(other, 1050.0, 1) == ["task"]

    async def test_a_question_that_was_put_is_not_put_twice(self) -> None:
        """Not even if the leg that put it died and the next one repeats it."""
        async with self.opened() as (one, _):
            held = await claimed(one, new_record())
            await one.publish("task", held.fence, Suspension(asked=(question("a"),)), {}, now=1001.0)
            await one.answer("task", {"a.1": 1}, now=1002.0)
            await one.publish("task", held.fence, Suspension(read=("a.1",)), {}, now=1003.0)
            leaves = Suspension(asked=(question("a"), question("a", 2)))
            after = await one.publish("task", held.fence, leaves, {}, now=1004.0)
            assert list(after.questions) == ["a.2"]

    async def test_an_end_is_final_and_can_be_repeated_by_who_made_it(self) -> None:
        """A reply that was lost does no harm."""
        async with self.opened() as (one, other):
            held = await claimed(one, new_record())
            for _ in range(2):
                await one.finish("task", held.fence, Ending(result=b'{"a":1}'), {"s:1": step(1)}, now=1001.0)
            done = await other.load("task")
            assert done is not None
            assert (done.state, done.result, done.error, done.due) == ("completed", b'{"a":1}', None, None)
            assert await other.entries("task") == {"s:1": step(1)}
            assert await other.claim("task", now=5000.0, lease=10.0) is None
            assert await other.answer("task", {"a.1": 1}, now=1002.0) == ()
            assert not await other.cancel("task", now=1002.0, tidy=True)
            assert await one.append("task", held.fence, {"s:2": step(2)}) is None

    async def test_a_release_hands_a_task_over_at_once(self) -> None:
        """And it does not count as a lost worker."""
        async with self.opened() as (one, other):
            held = await claimed(one, new_record())
            await one.release("task", held.fence, now=1001.0)
            taken = await other.claim("task", now=1001.0, lease=10.0)
            assert taken is not None
            assert taken.record.losses == 0

    async def test_a_task_that_waits_for_a_time_is_woken_once(self) -> None:
        """Its journal then says that the time is over. Whoever has seen an older row changes nothing."""
        async with self.opened() as (one, other):
            held = await claimed(one, new_record())
            asleep = {"d:sleep": Entry("draw", "", 5000.0)}
            await one.suspend("task", held.fence, Suspension(wake=5000.0), asleep, now=1001.0)
            seen = await other.load("task")
            assert seen is not None
            await other.wake(seen, await other.entries("task"), now=1002.0)
            taken = await one.claim("task", now=1002.0, lease=10.0)
            assert taken is not None
            assert taken.entries["z:sleep"].kind == "slept"
            assert taken.record.losses == 0
            try:
                await other.wake(seen, {}, now=1003.0)
            except LostClaim:
                return
            raise AssertionError("a task that runs was woken")

    # Cancelling and expiring

    async def test_what_waits_is_cancelled_at_once(self) -> None:
        """With a clean-up, some worker has to run that."""
        async with self.opened() as (one, other):
            for name in ("plain", "tidy"):
                held = await claimed(one, new_record(name))
                await one.suspend(name, held.fence, Suspension(asked=(question("a"),)), {}, now=1001.0)
            assert await other.cancel("plain", now=1002.0, tidy=False)
            assert await other.cancel("tidy", now=1002.0, tidy=True)
            plain, tidy = await one.load("plain"), await one.load("tidy")
            assert plain is not None
            assert tidy is not None
            assert (plain.state, plain.status, plain.questions) == ("cancelled", "cancelled", {})
            assert (tidy.state, tidy.status, tidy.questions) == ("tidying", "cancelled", {})
            assert await due_ids(one, 1002.0, 9) == ["tidy"]
            held = await one.claim("tidy", now=1002.0, lease=10.0) or held
            await one.tidied("tidy", held.fence)
            assert await due_ids(one, 9000.0, 9) == []

    async def test_a_running_task_is_told_to_stop(self) -> None:
        """It may still complete; if its worker dies instead, it is cancelled all the same."""
        async with self.opened() as (one, other):
            for name in ("stops", "ends", "dies"):
                held = await claimed(one, new_record(name))
                assert await other.cancel(name, now=1001.0, tidy=True)
                assert await one.append(name, held.fence, {"s:1": step(1)}) == "stopping"
            await one.stop("stops", 1, now=1002.0, lease=10.0, tidy=False)
            await one.finish("ends", 1, Ending(result=b"{}"), now=1002.0)
            states = {record.id: record.state for record in await other.listing()}
            assert states == {"stops": "cancelled", "ends": "completed", "dies": "stopping"}
            held = await other.claim("dies", now=1010.0, lease=10.0) or held
            assert held.record.state == "tidying"

    async def test_time_runs_out_and_what_is_over_is_forgotten(self) -> None:
        """Tasks that have ended keep their end until then."""
        async with self.opened() as (one, other):
            held = await claimed(one, new_record("runs"))
            done = await claimed(one, new_record("done"))
            await one.finish("done", done.fence, Ending(result=b"{}"), now=1001.0)
            await one.insert(new_record("endless", ttl=None), {"s:1": step(1)})
            assert await other.overdue(now=1059.0, limit=9) == []
            assert await other.overdue(now=1060.0, limit=9) == ["runs"]
            await other.expire(["runs", "done"], b'{"code":1}', now=1060.0, message="over")
            runs, finished = await other.load("runs"), await other.load("done")
            assert runs is not None
            assert finished is not None
            assert (runs.state, runs.error, runs.message) == ("failing", b'{"code":1}', "over")
            assert finished.state == "completed"
            assert await other.forget(before=1060.0) == 0
            assert await other.forget(before=1061.0, audience="another") == 0, (
                "they may keep theirs for longer"
            )
            assert await other.forget(before=1061.0, audience="server") == 1
            assert await other.forget(before=1061.0) == 0, "nobody has cleaned up after it"
            await one.stop("runs", held.fence, now=1062.0, lease=10.0, tidy=False)
            assert await other.forget(before=1061.0) == 1
            await one.insert(new_record("abandoned"), {})
            assert await other.forget(before=1060.0 + ABANDONED_SECONDS, audience="another") == 0
            assert await other.forget(before=1061.0 + ABANDONED_SECONDS, audience="another") == 1
            assert [record.id for record in await one.listing()] == ["endless"]
            assert await one.entries("endless") == {"s:1": step(1)}

    async def test_who_runs_a_task_whose_time_is_over_keeps_it_and_stops_it(self) -> None:
        """A client sees it fail at once. What runs is committed before the clean-up, by the same worker."""
        async with self.opened() as (one, other):
            for name, tidy in (("tidies", True), ("does not", False)):
                held = await claimed(one, new_record(name))
                before = await one.load(name)
                assert before is not None
                await other.expire([name], b"{}", now=1060.0, message="over")
                record = await one.load(name)
                assert record is not None
                assert (record.state, record.status, record.due) == ("failing", "failed", before.due)
                assert (record.fence, record.questions) == (held.fence, {})
                assert await one.append(name, held.fence, {"s:1": step(1)}) == "failing"
                assert await one.extend({name: held.fence}, until=1090.0) == {name}
                assert name not in await due_ids(other, 1089.0, 9)
                try:
                    await one.finish(name, held.fence, Ending(result=b"{}"), now=1061.0)
                except LostClaim:
                    pass
                else:
                    raise AssertionError("it has completed although it had failed")
                for _ in range(2):
                    stopped = await one.stop(name, held.fence, now=1062.0, lease=50.0, tidy=tidy)
                    assert stopped.state == ("failing" if tidy else "failed")
                    assert (stopped.due, stopped.updated) == (1112.0 if tidy else None, 1060.0)
                assert await one.entries(name) == {"s:1": step(1)}

    async def test_a_clean_up_that_is_handed_over_counts_no_lost_worker(self) -> None:
        """One whose worker is lost does, so that a clean-up which kills its workers is given up."""
        async with self.opened() as (one, other):
            for name, state in (("cancelled", "tidying"), ("expired", "failing")):
                await one.insert(new_record(name), {})
                if state == "tidying":
                    assert await one.cancel(name, now=1060.0, tidy=True)
                else:
                    assert len(await one.expire([name], b"{}", now=1060.0, message="over")) == 1
                    assert await one.expire([name], b"{}", now=1060.0, message="over") == []
                for _ in range(3):
                    held = await one.claim(name, now=1060.0, lease=10.0)
                    assert held is not None
                    released = await one.release(name, held.fence, now=1060.0)
                    assert (released.state, released.due, released.losses) == (state, 1060.0, 0)
                for losses in (1, 2):
                    held = await other.claim(name, now=1060.0 + 20 * losses, lease=10.0)
                    assert held is not None
                    assert (held.record.state, held.record.losses) == (state, losses)

    async def test_what_expires_or_is_given_up_has_its_clean_up_run(self) -> None:
        """A client sees it fail at once."""
        async with self.opened() as (one, other):
            await one.insert(new_record("expires"), {})
            held = await claimed(one, new_record("dies", ttl=None))
            await other.expire(["expires"], b'{"code":1}', now=1060.0, message="over")
            await one.give_up(
                "dies", held.fence, b'{"code":2}', now=1060.0, lease=10.0, tidy=True, message="died"
            )
            for name, due in (("expires", 1060.0), ("dies", 1070.0)):
                record = await other.load(name)
                assert record is not None
                assert (record.state, record.status, record.due) == ("failing", "failed", due)
                taken = await other.claim(name, now=1070.0, lease=10.0)
                assert taken is not None
                await other.tidied(name, taken.fence)
                assert await one.extend({name: taken.fence}, until=1090.0) == set()
                record = await one.load(name)
                assert record is not None
                assert (record.state, record.due) == ("failed", None)
