"""Rounds in Postgres: what is locked, what is renewed together, and a claim that stops half way."""

import asyncio
from typing import Any, Final

import psycopg
import pytest

from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Busy, Claimed, Recorded, Refused, Renewal
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.postgres import store as rounds
from tests.tasks.driving import PATIENCE

LEASE: Final = 10.0
NOW: Final = 1000.0
LATE: Final = NOW + LEASE + 1
EXPIRES: Final = 5000.0


async def claim(store: PostgresStore, round_id: str, now: float = NOW, instead_of: Busy | None = None) -> Any:
    return await store.claim(round_id, "yes", now=now, lease=LEASE, expires=EXPIRES, instead_of=instead_of)


async def test_a_row_that_somebody_writes_does_not_keep_others_from_being_renewed(database: str) -> None:
    store = PostgresStore(database)
    wanted = {f"round {number}": Renewal(1, EXPIRES) for number in range(20)}
    for round_id in wanted:
        assert await claim(store, round_id) == Claimed(1, {})
    with psycopg.connect(database) as other:
        other.execute("SELECT 1 FROM ekiden_rounds WHERE id = 'round 7' FOR UPDATE")
        async with asyncio.timeout(PATIENCE):
            renewed = await store.renew(wanted, until=LATE)
        assert renewed == {round_id: True for round_id in wanted if round_id != "round 7"}
    assert await store.renew(wanted, until=LATE) == dict.fromkeys(wanted, True)
    await store.close()


async def test_who_watches_an_owner_does_not_count_the_time_in_which_its_row_is_locked(database: str) -> None:
    """The owner cannot renew then. Who takes over must not be the first to have the row when it is free."""
    store = PostgresStore(database)
    await claim(store, "round")
    watched = Busy(1, NOW + LEASE)
    assert await claim(store, "round", LATE) == watched
    with psycopg.connect(database) as other:
        other.execute("SELECT 1 FROM ekiden_rounds WHERE id = 'round' FOR UPDATE")
        async with asyncio.timeout(PATIENCE):
            assert await claim(store, "round", LATE) == Busy(1, LATE)
            assert await claim(store, "round", LATE + 1) == Busy(1, LATE + 1)
            found = await store.claim("round", "no", now=LATE, lease=LEASE, expires=EXPIRES)
            assert found == Refused(), "that needs no lock"
    assert await claim(store, "round", LATE, watched) == Claimed(2, {})
    await store.close()


async def test_renewals_that_meet_do_not_wait_for_each_other_in_a_circle(database: str) -> None:
    """The event loop and the thread that stands by for it may renew the same rounds in the same moment."""
    one, other = PostgresStore(database), PostgresStore(database)
    wanted = {f"round {number}": Renewal(1, EXPIRES) for number in range(200)}
    for round_id in wanted:
        await claim(one, round_id)
    backwards = dict(reversed(wanted.items()))
    async with asyncio.timeout(PATIENCE):
        for _ in range(20):
            both = await asyncio.gather(one.renew(wanted, until=LATE), other.renew(backwards, until=LATE))
            assert both[0].keys() | both[1].keys() == wanted.keys()
            assert all([*both[0].values(), *both[1].values()])
    await one.close()
    await other.close()


async def test_no_row_stays_locked_while_an_owner_does_something_else(database: str) -> None:
    """Its event loop may be blocked at any moment, and a transaction that waits for it would lock the row."""
    store = PostgresStore(database)
    await claim(store, "round")
    done, seen = asyncio.Event(), 0

    async def work() -> None:
        for number in range(200):
            assert await store.commit("round", 1, {f"s:{number}": Entry("step", "", number)})
        assert await store.finish("round", 1, b"done")
        done.set()

    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as watching:
        working = asyncio.create_task(work())
        while not done.is_set() and not working.done():
            found = await watching.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND state = 'idle in transaction'"
            )
            ((count,),) = await found.fetchall()
            seen += count
        await working
    assert seen == 0
    await store.close()


@pytest.mark.parametrize("meanwhile", ["nothing", "renewed", "finished", "taken over", "given back"])
async def test_a_claim_that_stops_before_it_takes_a_round_takes_only_what_has_not_changed(
    database: str, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """Its process may be frozen between the look at the row and the statement that takes it."""
    owner, other = PostgresStore(database), PostgresStore(database)
    await claim(owner, "round")
    dead = Busy(1, NOW + LEASE)
    row, has_read, thawed = rounds._row, asyncio.Event(), asyncio.Event()

    async def freeze(*arguments: Any) -> Any:
        found = await row(*arguments)
        if not has_read.is_set():
            has_read.set()
            await thawed.wait()
        return found

    monkeypatch.setattr(rounds, "_row", freeze)
    async with asyncio.timeout(PATIENCE):
        taking = asyncio.create_task(claim(other, "round", LATE, instead_of=dead))
        await has_read.wait()
        expected: Any = Claimed(2, {})
        if meanwhile == "renewed":
            assert await owner.renew({"round": Renewal(1, EXPIRES)}, until=LATE + LEASE) == {"round": True}
            expected = Busy(1, LATE + LEASE)
        elif meanwhile == "finished":
            assert await owner.finish("round", 1, b"done")
            expected = Recorded(b"done")
        elif meanwhile == "taken over":
            assert await claim(owner, "round", LATE, instead_of=dead) == Claimed(2, {})
            expected = Busy(2, LATE + LEASE)
        elif meanwhile == "given back":
            assert await owner.commit("round", 1, {"s:1": Entry("step", "", 1)})
            await owner.release("round", 1)
            expected = Claimed(2, {"s:1": Entry("step", "", 1)})
        thawed.set()
        assert await taking == expected
    await owner.close()
    await other.close()
