"""Claims of two processes on one round, in virtual time: the store of one of them is slow, or fails."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import pytest

from ekiden import Server, StoreUnavailable, UsageError
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Renewal
from ekiden.rounds.outcome import Complete
from ekiden.server.rounds.owning.claim import RoundClaim
from ekiden.server.rounds.owning.once import Once
from ekiden.stores.memory import MemoryStore
from ekiden.tasks.leases.standby import Standby
from tests.simulation.virtual_time import VirtualTimeLoop, clock

LEASE = 2.0


def once_of(store: Any, **options: Any) -> Once:
    return Once(store, clock, lease=LEASE, keep=100.0, **options)


def claim_of(once: Once, round_id: str = "flow.1") -> RoundClaim:
    return RoundClaim(once, round_id, "token", {})


async def takes_over(once: Once, round_id: str = "flow.1", leases: float = 5) -> bool:
    """Whether another process gets the round within some leases."""
    other = claim_of(once, round_id)
    waiting = asyncio.create_task(other.own())
    await asyncio.wait({waiting}, timeout=leases * LEASE)
    if waiting.done():
        return True
    waiting.cancel()
    await asyncio.wait({waiting})
    return False


class Wayward(MemoryStore):
    """Shares the rows of a store, and answers as it is told to."""

    def __init__(self, rows: MemoryStore) -> None:
        super().__init__()
        self.rows = rows
        self.waits = True
        self.slow = 0.0
        self.problems: list[BaseException] = []
        self.renewed: list[int] = []

    async def claim(self, *arguments: Any, **more: Any) -> Any:
        claim = await self.rows.claim(*arguments, **more)
        await asyncio.sleep(self.slow)
        return claim

    async def renew(self, claims: Mapping[str, Renewal], *, until: float) -> dict[str, bool]:
        if self.problems:
            raise self.problems.pop(0)
        renewed = await self.rows.renew(claims, until=until)
        self.renewed.append(len(claims))
        await asyncio.sleep(self.slow)
        return renewed

    async def commit(self, *arguments: Any) -> bool:
        return await self.rows.commit(*arguments)

    async def release(self, *arguments: Any, **more: Any) -> Any:
        return await self.rows.release(*arguments, **more)


async def test_a_store_that_cancels_a_renewal_does_not_end_them_all() -> None:
    rows = MemoryStore()
    store = Wayward(rows)
    store.problems = [asyncio.CancelledError()]
    mine = claim_of(once_of(store))
    await mine.own()
    assert not await takes_over(once_of(rows))
    assert not mine.lost
    await mine.release()


async def test_a_renewal_that_hangs_and_fails_when_it_is_cut_off_is_not_a_fault_of_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cut: list[str] = []

    class Hanging(MemoryStore):
        waits = True

        async def renew(self, claims: Mapping[str, Renewal], *, until: float) -> dict[str, bool]:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cut.extend(claims)
                raise StoreUnavailable("cut off") from None
            return {}

    mine = claim_of(once_of(Hanging()))
    await mine.own()
    await asyncio.sleep(2 * LEASE)
    await mine.release()
    gc.collect()
    assert cut
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize(
    ("problem", "level"), [(StoreUnavailable("away"), "WARNING"), (RuntimeError("wrong"), "ERROR")]
)
async def test_an_outage_is_told_once_however_long_it_takes(
    problem: Exception, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Wayward(MemoryStore())
    claim = claim_of(once_of(store))
    await claim.own()
    with caplog.at_level("DEBUG", "ekiden.server.rounds.owning.lease"):
        for failures in (4, 2):
            store.problems = [problem] * failures
            async with asyncio.timeout(LEASE):
                while store.problems:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(LEASE / 2)  # It is renewed again.
    levels = [record.levelname for record in caplog.records]
    assert levels == [level, "DEBUG", "DEBUG", "DEBUG", level, "DEBUG"]
    assert "The leases of 1 rounds are not renewed yet" in caplog.text
    await claim.release()


@pytest.mark.parametrize("held_before", [False, True])
async def test_a_claim_whose_reply_came_late_is_renewed_in_time(held_before: bool) -> None:
    rows = MemoryStore()
    store = Wayward(rows)
    once = once_of(store)
    before = claim_of(once, "flow.0")
    if held_before:
        await before.own()
    store.slow = 0.7 * LEASE
    mine = claim_of(once)
    owning = asyncio.create_task(mine.own())
    await asyncio.sleep(0.1)
    taking = asyncio.create_task(takes_over(once_of(rows)))
    await owning
    store.slow = 0.0
    assert mine.is_sure()
    assert not await taking
    for claim in (before, mine):
        await claim.release()


async def test_a_renewal_whose_reply_came_too_late_is_not_believed() -> None:
    rows = MemoryStore()
    store = Wayward(rows)
    mine = claim_of(once_of(store))
    await mine.own()
    store.problems = [StoreUnavailable("away") for _ in range(6)]
    await asyncio.sleep(0.8 * LEASE)
    assert not mine.is_sure()
    store.problems, store.slow = [], 2.5 * LEASE
    owning = asyncio.create_task(mine.own())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    store.problems = [StoreUnavailable("away") for _ in range(1000)]  # One renewal was written before.
    assert await takes_over(once_of(rows))
    with pytest.raises(StoreUnavailable):
        await owning
    await mine.release()


@pytest.mark.parametrize("late", [1, 2, 5])
async def test_a_claim_is_owned_when_it_is_certain_however_many_replies_come_late(late: int) -> None:
    store = Wayward(MemoryStore())
    store.slow, mine = 0.8 * LEASE, claim_of(once_of(store))
    owning = asyncio.create_task(mine.own())
    await asyncio.sleep((late + 0.5) * store.slow)
    assert not owning.done()
    store.slow = 0.0
    await owning
    assert mine.is_sure()
    await mine.release()


async def test_a_claim_is_owned_when_it_is_certain_although_its_row_is_being_written_meanwhile() -> None:
    """The store leaves it out of its answers. The reply to the claim came too late to be believed."""
    store = Wayward(MemoryStore())
    store.slow = LEASE
    mine = claim_of(once_of(store))
    renew, left_out = store.renew, [True] * 3

    async def being_written(claims: Mapping[str, Renewal], *, until: float) -> dict[str, bool]:
        store.slow = 0.0
        return {} if left_out and left_out.pop() else await renew(claims, until=until)

    store.renew = being_written  # type: ignore[method-assign]  # the fault that is tested
    assert (await mine.own()).fence == 1
    assert not left_out
    assert mine.is_sure()
    await mine.release()


async def test_what_a_thread_has_renewed_is_certain_although_an_older_reply_comes_later() -> None:
    rows = MemoryStore()
    store = Wayward(rows)
    once = once_of(store)
    mine = claim_of(once)
    await mine.own()
    (leases,) = once._leases.values()
    store.slow = 0.9 * LEASE
    assert mine._lease is not None
    renewing = asyncio.create_task(mine._lease.renew())
    await asyncio.sleep(0.5 * LEASE)
    await leases.renew_by(rows)  # type: ignore[arg-type]  # has what is needed
    await renewing
    assert mine.is_sure()
    await mine.release()


async def test_a_clock_that_is_set_back_while_a_round_runs_does_not_have_it_forgotten_sooner() -> None:
    store, back = MemoryStore(), 0.0
    once = Once(store, lambda: clock() - back, lease=LEASE, keep=10.0)
    mine = claim_of(once)
    await mine.own()
    back = 50.0
    await asyncio.sleep(LEASE)
    done = await mine.finish(Complete({"mine": True}))
    assert await claim_of(once_of(store)).recorded_for_certain() == done


async def test_a_strict_claim_that_is_never_certain_is_given_back() -> None:
    rows = MemoryStore()
    store = Wayward(rows)
    once = once_of(store)
    store.slow = 0.8 * LEASE
    owning = asyncio.create_task(claim_of(once).recorded_for_certain())
    await asyncio.sleep(3 * LEASE)
    owning.cancel()
    await asyncio.wait({owning})
    assert not len(once.contenders)
    store.slow = 0.0
    assert await takes_over(once_of(rows), leases=0.1)


@pytest.mark.parametrize("failures", [1, 5])
async def test_a_step_that_ends_while_the_server_stops_is_committed_although_the_store_fails_first(
    failures: int,
) -> None:
    store = Wayward(MemoryStore())
    once = Once(store, clock, lease=1000.0, keep=2000.0)
    mine = claim_of(once)
    await mine.own()
    once.is_stopping = True
    commit = store.commit

    async def flaky(*arguments: Any) -> bool:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreUnavailable("away")
        return await commit(*arguments)

    store.commit = flaky  # type: ignore[method-assign]  # the fault that is tested
    await mine.commit({"s:pay": Entry("step", "", "paid")})
    await mine.release()


async def test_a_step_is_not_committed_for_ever_when_the_server_stops() -> None:
    store = Wayward(MemoryStore())
    once = once_of(store)
    mine = claim_of(once)
    await mine.own()

    async def away(*_: Any) -> bool:
        raise StoreUnavailable("away")

    store.commit = away  # type: ignore[method-assign]  # the fault that is tested
    committing = asyncio.create_task(mine.commit({"s:pay": Entry("step", "", "paid")}))
    await asyncio.sleep(3 * LEASE)
    assert not committing.done()
    once.is_stopping = True
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(committing, 60)
    await mine.release()


async def test_rounds_of_one_loop_stay_together_although_another_loop_claims_some() -> None:
    store = Wayward(MemoryStore())
    once = once_of(store)
    here = [claim_of(once, f"here.{number}") for number in range(3)]

    def elsewhere() -> None:
        async def one() -> None:
            claim = claim_of(once, "elsewhere.1")
            await claim.own()
            await claim.release()

        with asyncio.Runner() as runner:
            runner.run(one())

    for claim in here:
        await claim.own()
        await asyncio.to_thread(elsewhere)
    await asyncio.sleep(LEASE)
    assert set(store.renewed) == {3}
    for claim in here:
        await claim.release()


async def test_a_round_is_kept_although_no_thread_can_stand_by(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    rows = MemoryStore()
    mine = claim_of(once_of(rows, standby=Standby(MemoryStore, LEASE)))
    await mine.own()
    assert "No thread stands by" in caplog.text
    assert not await takes_over(once_of(rows))
    await mine.release()


async def test_a_thread_stands_by_again_after_the_server_was_stopped_while_it_held_a_round() -> None:
    watching: list[object] = []

    class Noted(Standby):
        def add(self, holder: Any) -> None:
            watching.append(holder)

        async def stop(self) -> None:
            watching.clear()

    standby = Noted(MemoryStore, LEASE)
    once = once_of(MemoryStore(), standby=standby)
    first, second = claim_of(once, "flow.1"), claim_of(once, "flow.2")
    await first.own()
    await standby.stop()
    await second.own()
    assert watching
    for claim in (first, second):
        await claim.release()


class _OneByOne(MemoryStore):
    """A store as it was written for an earlier version."""

    waits = True

    async def renew(self, round_id: str, fence: int, *, until: float) -> bool:  # type: ignore[override]
        return True


async def test_a_store_that_renews_one_round_at_a_time_is_refused_at_start() -> None:
    server = Server("shop", keys=[bytes(32)], store=_OneByOne())
    with pytest.raises(UsageError, match="must take many claims at once"):
        async with server.running():
            pass


def test_a_round_that_a_closed_loop_left_behind_is_taken_over_in_the_next() -> None:
    rows = MemoryStore()
    server = Server("shop", keys=[bytes(32)], store=Wayward(rows), clock=clock)
    once = server._rounds.once
    left, claimed = claim_of(once), False

    async def leave() -> None:
        await server.endpoint.start()
        await left.own()

    async def repeat() -> None:
        nonlocal claimed
        async with server.running():
            claim = claim_of(once)
            await claim.own()
            claimed = True
            await claim.release()

    loop = VirtualTimeLoop()
    loop.run_until_complete(leave())
    loop.close()
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(asyncio.wait_for(repeat(), 10 * once.lease))
    assert claimed
    left._let_go(None)  # As when its leg is collected at last.
    assert not len(once.contenders)


def test_event_loops_that_are_closed_are_let_go() -> None:
    once = once_of(MemoryStore())

    async def hold() -> None:
        claim = claim_of(once)
        await claim.own()
        await claim.release()

    def one() -> weakref.ref[asyncio.AbstractEventLoop]:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(hold())
            return weakref.ref(runner.get_loop())

    seen = [one() for _ in range(3)]
    gc.collect()
    assert [loop() is None for loop in seen[:-1]] == [True, True], "only the last may be known until the next"
