"""What every store of tasks must do, as tests: inherit, say how a store is opened, and let pytest collect it.

    class TestMyStore(TaskStoreContract):
        @asynccontextmanager
        async def opened(self):
            yield MyStore(...), MyStore(...)

Needs a runner that awaits async tests, such as pytest-asyncio in its auto mode.
"""

import abc
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from ekiden.rounds.journal import Entry
from ekiden.tasks.moves import Ending, LostClaim, Suspension
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.store import Held, TaskStore

__all__ = ["TaskStoreContract", "new_record"]

_PATIENCE = 10.0


def new_record(task_id: str = "task", **fields: Any) -> TaskRecord:
    """A task that was made at the time 1000 and is due at once."""
    usual: dict[str, Any] = {
        "flow": f"flow of {task_id}",
        "answers": "",
        "audience": "server",
        "tool": "tool",
        "principal": "",
        "arguments": {"amount": 5, "name": "\u00e4\u6f22", "deep": [{"x": None}]},
        "meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
        "started": 999.5,
        "created": 1000.0,
        "updated": 1000.0,
        "ttl": 60.0,
        "poll": 1.0,
        "due": 1000.0,
    }
    return TaskRecord(id=task_id, **{**usual, **fields})


_TOOLS = ("tool",)


async def _due(store: TaskStore, now: float, limit: int) -> list[str]:
    return [found.id for found in await store.due("server", _TOOLS, now=now, limit=limit)]


def _step(value: Any) -> Entry:
    return Entry("step", "digest", value)


def _question(name: str, attempt: int = 1) -> Question:
    return Question(name, attempt, "digest", {"method": "roots/list"})


class TaskStoreContract(abc.ABC):
    """Every test opens an empty store, twice: as two processes would."""

    @abc.abstractmethod
    def opened(self) -> AbstractAsyncContextManager[tuple[TaskStore, TaskStore]]:
        """Two ways into one empty store."""

    async def _claimed(self, store: TaskStore, record: TaskRecord, now: float = 1000.0) -> Held:
        await store.insert(record, {})
        held = await store.claim(record.id, now=now, lease=10.0)
        assert held is not None
        return held

    # Keeping

    async def test_a_task_is_found_as_it_was_kept(self) -> None:
        """Through both ways in."""
        async with self.opened() as (one, other):
            record = new_record()
            entries = {f"s:{number}": _step({"n": [number, "x" * 5000, 1.5, None]}) for number in range(30)}
            assert await one.insert(record, entries) == record
            assert await other.load("task") == record
            kept = await other.entries("task")
            assert kept == entries
            assert list(kept) == list(entries)
            assert await other.load("another") is None
            assert await other.entries("another") == {}

    async def test_a_flow_becomes_one_task_only(self) -> None:
        """Also if both try at the same time."""
        async with self.opened() as (one, other):
            tries = [
                (one if n % 2 else other).insert(new_record(f"task {n}", flow="flow"), {}) for n in range(8)
            ]
            kept = await asyncio.gather(*tries)
            assert len({record.id for record in kept}) == 1
            assert len(await one.listing()) == 1

    async def test_a_change_that_raises_changes_nothing(self) -> None:
        """Neither the row nor the journal."""
        async with self.opened() as (one, other):
            await one.insert(new_record(), {})

            def spoil(record: TaskRecord) -> None:
                record.message = "spoiled"
                raise ValueError("no")

            try:
                await one.change("task", spoil, {"s:1": _step(1)})
            except ValueError:
                pass
            else:
                raise AssertionError("what the function raised was swallowed")
            assert await other.load("task") == new_record()
            assert await other.entries("task") == {}
            assert await one.change("another", spoil) is None

    async def test_concurrent_changes_are_made_one_after_another(self) -> None:
        """None of them is lost."""
        async with self.opened() as (one, other):
            await one.insert(new_record(), {})

            def count(record: TaskRecord) -> None:
                record.losses += 1

            await asyncio.gather(*((one if n % 2 else other).change("task", count) for n in range(20)))
            kept = await one.load("task")
            assert kept is not None
            assert kept.losses == 20

    # Claiming

    async def test_one_of_many_claims_wins(self) -> None:
        """And it has a fence of its own."""
        async with self.opened() as (one, other):
            await one.insert(new_record(), {"s:1": _step(1)})
            tries = [(one if n % 2 else other).claim("task", now=1000.0, lease=10.0) for n in range(8)]
            won = [held for held in await asyncio.gather(*tries) if held is not None]
            assert len(won) == 1
            assert won[0].fence == 1
            assert won[0].entries == {"s:1": _step(1)}
            assert await one.claim("another", now=1000.0, lease=10.0) is None

    async def test_a_claim_lasts_for_its_lease_and_can_be_extended(self) -> None:
        """Then another worker has it."""
        async with self.opened() as (one, other):
            held = await self._claimed(one, new_record())
            assert await other.claim("task", now=1009.0, lease=10.0) is None
            assert await one.extend({"task": held.fence, "another": 1}, until=1019.0) == {"task"}
            assert await other.claim("task", now=1011.0, lease=10.0) is None
            taken = await other.claim("task", now=1019.5, lease=10.0)
            assert taken is not None
            assert taken.fence == held.fence + 1
            assert await one.extend({"task": held.fence}, until=1030.0) == set()

    async def test_who_lost_the_claim_changes_nothing(self) -> None:
        """Whatever he tries."""
        async with self.opened() as (one, other):
            held = await self._claimed(one, new_record())
            assert await other.claim("task", now=1010.0, lease=10.0) is not None
            before = await other.load("task")
            assert await one.append("task", held.fence, {"s:1": _step(1)}) is None
            leaves = Suspension(asked=(_question("a"),))
            attempts: tuple[Callable[[], Awaitable[object]], ...] = (
                lambda: one.publish("task", held.fence, leaves, {"s:2": _step(2)}, now=1011.0),
                lambda: one.suspend("task", held.fence, leaves, {"s:2": _step(2)}, now=1011.0),
                lambda: one.finish("task", held.fence, Ending(result=b"{}"), {"s:2": _step(2)}, now=1011.0),
                lambda: one.release("task", held.fence, now=1011.0),
                lambda: one.stop("task", held.fence, now=1011.0, lease=10.0, tidy=False),
            )
            for attempt in attempts:
                try:
                    await attempt()
                except LostClaim:
                    continue
                raise AssertionError("a lost claim was good enough")
            assert await other.load("task") == before
            assert await other.entries("task") == {}

    async def test_what_is_due_is_found_in_order_and_by_audience(self) -> None:
        """The longest overdue first."""
        async with self.opened() as (one, other):
            assert await other.next_due("server", _TOOLS) is None
            for name, due in (("late", 900.0), ("now", 1000.0), ("later", 1200.0), ("never", None)):
                await one.insert(new_record(name, due=due), {})
            await one.insert(new_record("foreign", due=800.0, audience="another"), {})
            assert await _due(other, 1000.0, 10) == ["late", "now"]
            assert await _due(other, 1000.0, 1) == ["late"]
            assert await other.due("server", ("another tool",), now=1000.0, limit=9) == []
            assert await other.due("server", (), now=1000.0, limit=9) == []
            assert await other.next_due("server", ("another tool",)) is None
            assert await other.next_due("server", _TOOLS) == 900.0
            assert await other.next_due("another", _TOOLS) == 800.0

    async def test_who_waits_behind_a_flood_is_found(self) -> None:
        """The first of every principal, however many tasks another one has."""
        async with self.opened() as (one, other):
            for number in range(20):
                await one.insert(new_record(f"flood {number}", due=900.0 + number, principal="loud"), {})
            for name in ("quiet", "shy"):
                for number in (1, 2):
                    await one.insert(new_record(f"{name} {number}", due=990.0 + number, principal=name), {})
            found = await other.due("server", _TOOLS, now=1000.0, limit=5)
            assert [each.id for each in found[:5]] == [f"flood {number}" for number in range(5)]
            assert sorted(each.id for each in found[5:]) == ["quiet 1", "shy 1"]
            assert {each.principal for each in found} == {"loud", "quiet", "shy"}
            assert (found[0].state, found[0].due, found[0].fence, found[0].losses) == ("queued", 900.0, 0, 0)

    async def test_several_are_claimed_at_once(self) -> None:
        """Those that can be had: what is gone, held or not due yet keeps nobody else waiting."""
        async with self.opened() as (one, other):
            for name in ("a", "b", "c", "later"):
                await one.insert(new_record(name, due=2000.0 if name == "later" else 1000.0), {})
            await one.append("a", 0, {"s:0": _step(0)})
            assert await other.claim("b", now=1000.0, lease=10.0) is not None
            names = ["a", "b", "c", "later", "gone"]
            held = await one.claim_all(names, now=1000.0, lease=10.0)
            assert sorted(each.record.id for each in held) == ["a", "c"]
            assert all(each.fence == 1 and each.record.state == "running" for each in held)
            tries = await asyncio.gather(
                *(
                    (one if n % 2 else other).claim_all(["a", "b", "c"], now=1010.0, lease=9.0)
                    for n in range(6)
                )
            )
            won = sorted(each.record.id for claimed in tries for each in claimed)
            assert won == ["a", "b", "c"]

    async def test_progress_is_what_a_worker_that_dies_leaves_behind(self) -> None:
        """Only claims without any are counted."""
        async with self.opened() as (one, _):
            await self._claimed(one, new_record(ttl=None))
            second = await one.claim("task", now=1010.0, lease=10.0)
            assert second is not None
            assert second.record.losses == 1
            assert await one.append("task", second.fence, {"s:1": _step(1)}) == "running"
            third = await one.claim("task", now=1020.0, lease=10.0)
            assert third is not None
            assert third.record.losses == 1

    # A leg and its end

    async def test_steps_are_added_in_order(self) -> None:
        """And a journal that is written twice is the same as one that is written once."""
        async with self.opened() as (one, other):
            held = await self._claimed(one, new_record())
            for number in (3, 1, 2):
                assert await one.append("task", held.fence, {f"s:{number}": _step(number)}) == "running"
            assert await one.append("task", held.fence, {"s:2": _step(2)}) == "running"
            assert list(await other.entries("task")) == ["s:3", "s:1", "s:2"]
            assert await one.append("task", held.fence, {"s:3": _step(3)}) == "running"
            assert list(await other.entries("task")) == ["s:1", "s:2", "s:3"], (
                "what is added again comes last"
            )

    async def test_questions_wait_for_answers(self) -> None:
        """A task that waits is due as soon as one came, and unknown keys are ignored."""
        async with self.opened() as (one, other):
            held = await self._claimed(one, new_record())
            leaves = Suspension(asked=(_question("a"), _question("b")))
            await one.suspend("task", held.fence, leaves, {"d:now": _step(1)}, now=1001.0)
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

    async def test_an_answer_that_the_leg_did_not_see_makes_the_task_due(self) -> None:
        """One that it saw and did not want does not."""
        async with self.opened() as (one, other):
            held = await self._claimed(one, new_record())
            leaves = Suspension(asked=(_question("a"), _question("b")))
            await one.publish("task", held.fence, leaves, {}, now=1001.0)
            assert await other.answer("task", {"a.1": 1}, now=1002.0) == ("a.1",)
            after = await one.suspend("task", held.fence, Suspension(), {}, now=1003.0)
            assert (after.state, after.due) == ("queued", 1003.0)
            again = await one.claim("task", now=1003.0, lease=10.0)
            assert again is not None
            seen = Suspension(seen=frozenset({"a.1"}), wake=1050.0)
            after = await one.suspend("task", again.fence, seen, {}, now=1004.0)
            assert (after.state, after.due) == ("waiting", 1050.0)
            assert await _due(other, 1049.0, 1) == []
            assert await _due(other, 1050.0, 1) == ["task"]

    async def test_a_question_that_was_put_is_not_put_twice(self) -> None:
        """Not even if the leg that put it died and the next one repeats it."""
        async with self.opened() as (one, _):
            held = await self._claimed(one, new_record())
            await one.publish("task", held.fence, Suspension(asked=(_question("a"),)), {}, now=1001.0)
            await one.answer("task", {"a.1": 1}, now=1002.0)
            await one.publish("task", held.fence, Suspension(read=("a.1",)), {}, now=1003.0)
            leaves = Suspension(asked=(_question("a"), _question("a", 2)))
            after = await one.publish("task", held.fence, leaves, {}, now=1004.0)
            assert list(after.questions) == ["a.2"]

    async def test_an_end_is_final_and_can_be_repeated_by_who_made_it(self) -> None:
        """A reply that was lost does no harm."""
        async with self.opened() as (one, other):
            held = await self._claimed(one, new_record())
            for _ in range(2):
                await one.finish("task", held.fence, Ending(result=b'{"a":1}'), {"s:1": _step(1)}, now=1001.0)
            done = await other.load("task")
            assert done is not None
            assert (done.state, done.result, done.error, done.due) == ("completed", b'{"a":1}', None, None)
            assert await other.entries("task") == {"s:1": _step(1)}
            assert await other.claim("task", now=5000.0, lease=10.0) is None
            assert await other.answer("task", {"a.1": 1}, now=1002.0) == ()
            assert not await other.cancel("task", now=1002.0, tidy=True)
            assert await one.append("task", held.fence, {"s:2": _step(2)}) is None

    async def test_a_release_hands_a_task_over_at_once(self) -> None:
        """And it is no lost worker."""
        async with self.opened() as (one, other):
            held = await self._claimed(one, new_record())
            await one.release("task", held.fence, now=1001.0)
            taken = await other.claim("task", now=1001.0, lease=10.0)
            assert taken is not None
            assert taken.record.losses == 0

    # Cancelling and expiring

    async def test_what_waits_is_cancelled_at_once(self) -> None:
        """With a clean-up, some worker has to run that."""
        async with self.opened() as (one, other):
            for name in ("plain", "tidy"):
                held = await self._claimed(one, new_record(name))
                await one.suspend(name, held.fence, Suspension(asked=(_question("a"),)), {}, now=1001.0)
            assert await other.cancel("plain", now=1002.0, tidy=False)
            assert await other.cancel("tidy", now=1002.0, tidy=True)
            plain, tidy = await one.load("plain"), await one.load("tidy")
            assert plain is not None
            assert tidy is not None
            assert (plain.state, plain.status, plain.questions) == ("cancelled", "cancelled", {})
            assert (tidy.state, tidy.status, tidy.questions) == ("tidying", "cancelled", {})
            assert await _due(one, 1002.0, 9) == ["tidy"]
            held = await one.claim("tidy", now=1002.0, lease=10.0) or held
            await one.tidied("tidy", held.fence)
            assert await _due(one, 9000.0, 9) == []

    async def test_a_running_task_is_told_to_stop(self) -> None:
        """It may still complete; if its worker dies instead, it is cancelled all the same."""
        async with self.opened() as (one, other):
            for name in ("stops", "ends", "dies"):
                held = await self._claimed(one, new_record(name))
                assert await other.cancel(name, now=1001.0, tidy=True)
                assert await one.append(name, held.fence, {"s:1": _step(1)}) == "stopping"
            await one.stop("stops", 1, now=1002.0, lease=10.0, tidy=False)
            await one.finish("ends", 1, Ending(result=b"{}"), now=1002.0)
            states = {record.id: record.state for record in await other.listing()}
            assert states == {"stops": "cancelled", "ends": "completed", "dies": "stopping"}
            held = await other.claim("dies", now=1010.0, lease=10.0) or held
            assert held.record.state == "tidying"

    async def test_time_runs_out_and_what_is_over_is_forgotten(self) -> None:
        """Tasks that have ended keep their end until then."""
        async with self.opened() as (one, other):
            held = await self._claimed(one, new_record("runs"))
            done = await self._claimed(one, new_record("done"))
            await one.finish("done", done.fence, Ending(result=b"{}"), now=1001.0)
            await one.insert(new_record("endless", ttl=None), {"s:1": _step(1)})
            assert await other.overdue(now=1059.0, limit=9) == []
            assert await other.overdue(now=1060.0, limit=9) == ["runs"]
            await other.expire(
                ["runs", "done"], b'{"code":1}', now=1060.0, message="over", tidies=lambda record: False
            )
            assert await one.append("runs", held.fence, {"s:1": _step(1)}) is None
            runs, finished = await other.load("runs"), await other.load("done")
            assert runs is not None
            assert finished is not None
            assert (runs.state, runs.error, runs.message) == ("failed", b'{"code":1}', "over")
            assert finished.state == "completed"
            assert await other.forget(before=1060.0) == 0
            assert await other.forget(before=1061.0) == 2
            assert [record.id for record in await one.listing()] == ["endless"]
            assert await one.entries("endless") == {"s:1": _step(1)}

    async def test_what_expires_or_is_given_up_has_its_clean_up_run(self) -> None:
        """A client sees it fail at once."""
        async with self.opened() as (one, other):
            await self._claimed(one, new_record("expires"))
            held = await self._claimed(one, new_record("dies", ttl=None))
            await other.expire(
                ["expires"], b'{"code":1}', now=1060.0, message="over", tidies=lambda record: True
            )
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

    # Looking on

    async def test_the_operator_sees_the_newest_first(self) -> None:
        """And can choose."""
        async with self.opened() as (one, other):
            for number in range(4):
                whose = "server" if number else "another"
                await one.insert(new_record(str(number), created=1000.0 + number, audience=whose), {})
            await one.insert(new_record("4", created=999.0, principal="alice"), {})
            await one.claim("2", now=1010.0, lease=10.0)
            assert [record.id for record in await other.listing(limit=3)] == ["3", "2", "1"]
            assert [record.id for record in await other.listing(audience="another")] == ["0"]
            assert [record.id for record in await other.listing(state="running")] == ["2"]
            assert [r.id for r in await other.listing(audience="server", principal="alice")] == ["4"]
            assert await other.listing(audience="server", principal="bob") == []

    async def test_a_look_at_all_tasks_goes_on_where_the_last_one_ended(self) -> None:
        """Tasks of the same moment are told apart by their ids."""
        async with self.opened() as (one, other):
            for name in "abcd":
                await one.insert(new_record(name, created=1000.0 + (name == "d")), {})
            assert [record.id for record in await other.listing(limit=2)] == ["d", "c"]
            rest = await other.listing(after=(1000.0, "c"), limit=2)
            assert [record.id for record in rest] == ["b", "a"]
            assert await other.listing(after=(1000.0, "a")) == []

    async def test_changes_are_signalled_to_every_process(self) -> None:
        """Until nobody wants to know any more. A signal may be lost or doubled, but not every time."""
        async with self.opened() as (one, other):
            heard: set[tuple[str, str]] = set()
            ends = [
                one.watch(lambda signal: heard.add(("one", signal.task_id)), works=True),
                other.watch(lambda signal: heard.add(("other", signal.task_id))),
            ]
            async with asyncio.timeout(_PATIENCE):
                number = 0
                while {who for who, _ in heard} != {"one", "other"}:
                    number += 1
                    await one.insert(new_record(f"task {number}"), {})
                    await asyncio.sleep(0.05)
            assert {task_id for _, task_id in heard} <= {f"task {n + 1}" for n in range(number)}
            for end in ends:
                end()
            await asyncio.sleep(0.05)
            heard.clear()
            await one.cancel("task 1", now=1001.0, tidy=False)
            await asyncio.sleep(0.1)
            assert heard == set()
