"""When a round is taken over, in virtual time: its owner could renew before, and is not sure any more."""

import asyncio
from typing import Any

import pytest

from ekiden.rounds.ledger import Busy, decide_claim
from ekiden.server.rounds.owning import contenders
from ekiden.server.rounds.owning.claim import RoundClaim
from ekiden.server.rounds.owning.contenders import Watch
from ekiden.server.rounds.owning.once import Once
from ekiden.stores.memory import MemoryStore
from ekiden.stores.sqlite.file import STALE_PART
from ekiden.tasks.leases.renewing import SURE_PART
from tests.simulation.virtual_time import clock

LEASE = 2.0


def once_of(store: Any) -> Once:
    return Once(store, clock, lease=LEASE, keep=100.0)


def claim_of(once: Once, round_id: str = "flow.1") -> RoundClaim:
    return RoundClaim(once, round_id, "token", {})


class LockedFile(MemoryStore):
    """Rows as in a SQLite file: while somebody locks it, it can be read, and whoever writes tries again.

    Who waits already tries less often than who has just come, as SQLite does it.
    """

    waits = True

    def __init__(self) -> None:
        super().__init__()
        self.locked_until = 0.0

    async def _written(self) -> None:
        pause = 0.001
        while asyncio.get_running_loop().time() < self.locked_until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.1)

    def _is_read_only(self, round_id: str, history: str, now: float, instead_of: Busy | None) -> bool:
        decided = decide_claim(self._rounds.get(round_id), history, now, instead_of)
        return isinstance(decided, Busy) and decided.leased_until > now

    async def claim(self, round_id: str, history: str, **more: Any) -> Any:
        instead_of = more.pop("instead_of", None)
        if not self._is_read_only(round_id, history, more["now"], instead_of):
            began = asyncio.get_running_loop().time()
            await self._written()
            if asyncio.get_running_loop().time() - began > more["lease"] * STALE_PART:
                instead_of = None
        return await super().claim(round_id, history, instead_of=instead_of, **more)

    async def renew(self, *arguments: Any, **more: Any) -> Any:
        await self._written()
        return await super().renew(*arguments, **more)


@pytest.mark.parametrize("leases", [0.9, 1.05, 1.1, 1.15, 1.2, 1.24, 1.3, 2.0])
async def test_a_living_owner_keeps_its_round_however_long_the_file_was_locked(leases: float) -> None:
    store = LockedFile()
    mine, other = claim_of(once_of(store)), claim_of(once_of(store))
    await mine.own()
    store.locked_until = asyncio.get_running_loop().time() + leases * LEASE
    taking = asyncio.create_task(other.own())
    await asyncio.wait({taking}, timeout=5 * LEASE)
    assert not taking.done()
    assert not mine.lost
    taking.cancel()
    await asyncio.wait({taking})
    await mine.release()


def watched(watch: Watch, owner: Busy, since: float, until: float, over_at: float) -> Busy | None:
    """Who is dead after the owner was seen ten times in a lease of one second."""
    for tenth in range(round(since * 10), round(until * 10) + 1):
        watch.note(owner, tenth / 10, 1.0, is_over=tenth / 10 >= over_at)
    return watch.dead_owner(until, 1.0)


def test_an_owner_is_watched_for_as_long_as_it_may_be_sure() -> None:
    owner = Busy(1, 0.0)
    assert watched(Watch(), owner, 0.0, SURE_PART - 0.1, over_at=0.0) is None
    assert watched(Watch(), owner, 0.0, SURE_PART + 0.1, over_at=0.0) == owner


def test_a_part_of_that_comes_after_the_end_of_its_lease() -> None:
    owner = Busy(1, 1.0)
    assert watched(Watch(), owner, 0.0, 1.2, over_at=1.0) is None
    assert watched(Watch(), owner, 0.0, 1.3, over_at=1.0) == owner


def test_a_watch_counts_whose_parts_are_exactly_as_long_as_they_must_be() -> None:
    owner, watch = Busy(1, 0.5), Watch()
    for quarter in range(4):
        watch.note(owner, quarter / 4, 1.0, is_over=quarter >= 2)
        assert (watch.dead_owner(quarter / 4, 1.0) is owner) is (quarter == 3)
    assert watch.dead_owner(1.0, 1.0) is owner
    assert watch.dead_owner(1.01, 1.0) is None, "nobody has looked for too long"
    watch.note(owner, 1.01, 1.0, is_over=True)
    assert watch.dead_owner(1.01, 1.0) is None, "so it begins again"


def test_every_renewal_is_a_sign_of_life_whatever_it_says() -> None:
    """Clocks can be set back, and what is late can overtake what is new."""
    watch = Watch()
    assert watched(watch, Busy(1, 1.0), 0.0, 1.2, over_at=0.0) is not None
    assert watched(watch, Busy(1, 0.5), 1.3, 1.9, over_at=0.0) is None


# Watching for nobody


async def leave(once: Once, round_id: str) -> None:
    """A request waits for a round that somebody else has, and goes away."""
    waiting = asyncio.create_task(claim_of(once, round_id).own())
    await asyncio.wait({waiting}, timeout=LEASE / 10)
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_so_many_owners_are_watched_for_nobody_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes a look into the store now and then."""
    monkeypatch.setattr(contenders, "_MOST_WATCHED", 2)
    store = MemoryStore()
    owner, once = once_of(store), once_of(store)
    mine = [claim_of(owner, f"flow.{number}") for number in range(3)]
    for claim in mine:
        await claim.own()
        await leave(once, claim._round_id)
    await leave(once, "flow.0")
    assert [len(once.lookout), len(once.contenders)] == [2, 2]
    await asyncio.sleep(3 * LEASE)
    assert [len(once.lookout), len(once.contenders)] == [0, 0]
    for claim in mine:
        assert not claim.lost
        await claim.release()


async def test_a_round_that_is_given_back_is_not_watched_any_more() -> None:
    """It is free, for any history: to look at it has claimed nothing."""
    store = MemoryStore()
    mine, once = claim_of(once_of(store)), once_of(store)
    await mine.own()
    await leave(once, "flow.1")
    await mine.release()
    await asyncio.sleep(LEASE / 4)
    assert len(once.lookout) == 0
    other = RoundClaim(once, "flow.1", "another token", {})
    await other.own()
    await other.release()


async def test_an_owner_is_seen_to_be_dead_although_repeats_come_seldom_and_leave_soon() -> None:
    """Half a lease lies between them: none of them alone has watched it for long enough."""
    store = MemoryStore()
    once = once_of(store)
    history = claim_of(once).history
    await store.claim("flow.1", history, now=clock(), lease=LEASE, expires=clock() + 100.0)
    tries = 0
    while True:
        claim, tries = claim_of(once), tries + 1
        owning = asyncio.create_task(claim.own())
        await asyncio.wait({owning}, timeout=LEASE / 10)
        if owning.done():
            break
        owning.cancel()
        await asyncio.wait({owning})
        assert tries < 10
        await asyncio.sleep(LEASE / 2)
    assert (await owning).fence > 1
    assert tries < 5
    await claim.release()
    await once.lookout.stop()
