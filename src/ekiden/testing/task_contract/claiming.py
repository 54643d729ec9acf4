"""The contract of a store of tasks: one worker has a task at a time, and what is due is found."""

import asyncio
from collections.abc import Awaitable, Callable

from ekiden.errors import LostClaim
from ekiden.tasks.moves import Ending, Suspension
from ekiden.testing.task_contract.opening import OpensTaskStore
from ekiden.testing.task_contract.records import TOOLS, claimed, due_ids, new_record, question, step

__all__ = ["ClaimingContract"]


class ClaimingContract(OpensTaskStore):
    """A claim has one owner, which proves it by a fence."""

    # Claiming

    async def test_one_of_many_claims_wins(self) -> None:
        """And it has a fence of its own."""
        async with self.opened() as (one, other):
            await one.insert(new_record(), {"s:1": step(1)})
            tries = [(one if n % 2 else other).claim("task", now=1000.0, lease=10.0) for n in range(8)]
            won = [held for held in await asyncio.gather(*tries) if held is not None]
            assert len(won) == 1
            assert won[0].fence == 1
            assert won[0].entries == {"s:1": step(1)}
            assert await one.claim("another", now=1000.0, lease=10.0) is None

    async def test_a_claim_lasts_for_its_lease_and_can_be_extended(self) -> None:
        """Then another worker has it."""
        async with self.opened() as (one, other):
            held = await claimed(one, new_record())
            assert await other.claim("task", now=1009.0, lease=10.0) is None
            assert await one.extend({"task": held.fence, "another": 1}, until=1019.0) == {"task"}
            assert await other.claim("task", now=1011.0, lease=10.0) is None
            taken = await other.claim("task", now=1019.5, lease=10.0)
            assert taken is not None
            assert taken.fence == held.fence + 1
            assert await one.extend({"task": held.fence}, until=1030.0) == set()
            assert await one.extend({}, until=1030.0) == set()

    async def test_who_lost_the_claim_changes_nothing(self) -> None:
        """Whatever it tries."""
        async with self.opened() as (one, other):
            held = await claimed(one, new_record())
            assert await other.claim("task", now=1010.0, lease=10.0) is not None
            before = await other.load("task")
            assert await one.append("task", held.fence, {"s:1": step(1)}) is None
            leaves = Suspension(asked=(question("a"),))
            attempts: tuple[Callable[[], Awaitable[object]], ...] = (
                lambda: one.publish("task", held.fence, leaves, {"s:2": step(2)}, now=1011.0),
                lambda: one.suspend("task", held.fence, leaves, {"s:2": step(2)}, now=1011.0),
                lambda: one.finish("task", held.fence, Ending(result=b"{}"), {"s:2": step(2)}, now=1011.0),
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
            assert await other.next_due("server", TOOLS) is None
            for name, due in (("late", 900.0), ("now", 1000.0), ("later", 1200.0), ("never", None)):
                await one.insert(new_record(name, due=due), {})
            await one.insert(new_record("foreign", due=800.0, audience="another"), {})
            assert await due_ids(other, 1000.0, 10) == ["late", "now"]
            assert await due_ids(other, 1000.0, 1) == ["late"]
            assert await other.due("server", ("another tool",), now=1000.0, limit=9) == []
            assert await other.due("server", (), now=1000.0, limit=9) == []
            assert await other.next_due("server", ("another tool",)) is None
            assert await other.next_due("server", TOOLS) == 900.0
            assert await other.next_due("another", TOOLS) == 800.0

    async def test_who_waits_behind_a_flood_is_found(self) -> None:
        """The first of every principal, however many tasks another one has."""
        async with self.opened() as (one, other):
            for number in range(20):
                await one.insert(new_record(f"flood {number}", due=900.0 + number, principal="loud"), {})
            for name in ("quiet", "shy"):
                for number in (1, 2):
                    await one.insert(new_record(f"{name} {number}", due=990.0 + number, principal=name), {})
            found = await other.due("server", TOOLS, now=1000.0, limit=5)
            assert [each.id for each in found[:5]] == [f"flood {number}" for number in range(5)]
            assert sorted(each.id for each in found[5:]) == ["quiet 1", "shy 1"]
            assert {each.principal for each in found} == {"loud", "quiet", "shy"}
            assert (found[0].state, found[0].due, found[0].fence, found[0].losses) == ("queued", 900.0, 0, 0)

    async def test_several_are_claimed_at_once(self) -> None:
        """Those that can be had: one that is gone, held or not due yet does not hold up the others."""
        async with self.opened() as (one, other):
            for name in ("a", "b", "c", "later"):
                await one.insert(new_record(name, due=2000.0 if name == "later" else 1000.0), {})
            await one.append("a", 0, {"s:0": step(0)})
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
            await claimed(one, new_record(ttl=None))
            second = await one.claim("task", now=1010.0, lease=10.0)
            assert second is not None
            assert second.record.losses == 1
            assert await one.append("task", second.fence, {"s:1": step(1)}) == "running"
            third = await one.claim("task", now=1020.0, lease=10.0)
            assert third is not None
            assert third.record.losses == 1

    async def test_a_worker_that_lives_is_no_loss(self) -> None:
        """It lost its claim, and says so; it can say it once, and only of its own."""
        async with self.opened() as (one, other):
            held = await claimed(one, new_record())
            assert not await one.survive("task", held.fence)
            taken = await other.claim("task", now=1010.0, lease=10.0)
            assert taken is not None
            assert taken.record.losses == 1
            assert not await other.survive("task", taken.fence)
            assert await one.survive("task", held.fence)
            assert not await one.survive("task", held.fence)
            after = await other.load("task")
            assert after is not None
            assert (after.state, after.fence, after.losses) == ("running", taken.fence, 0)
            assert await other.extend({"task": taken.fence}, until=1030.0) == {"task"}
            await other.finish("task", taken.fence, Ending(result=b"{}"), now=1011.0)
            assert not await one.survive("task", held.fence)
            assert not await one.survive("gone", 1)
