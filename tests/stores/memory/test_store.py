"""The ledger in memory keeps within its bounds, whatever is put into it."""

import pytest

from ekiden.errors import StoreUnavailable
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Claimed, Recorded, Renewal
from ekiden.stores.memory import MemoryStore
from ekiden.stores.memory import store as memory


@pytest.fixture(autouse=True)
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST_BYTES", 10_000)
    monkeypatch.setattr(memory, "_MOST_ROUNDS", 100)


async def claim(store: MemoryStore, name: str, *, now: float = 0.0, expires: float = 100.0) -> int:
    claimed = await store.claim(name, "history", now=now, lease=10.0, expires=expires)
    assert isinstance(claimed, Claimed)
    return claimed.fence


async def is_known(store: MemoryStore, name: str) -> bool:
    return await store.look(name, "another", now=0.0) is not None


async def test_what_steps_returned_counts_as_much_as_what_rounds_ended_with() -> None:
    store = MemoryStore()
    for n in range(20):
        fence = await claim(store, f"round {n}")
        assert await store.commit(f"round {n}", fence, {"s:step": Entry("step", "d", "x" * 1000, 0)})
        assert await store.finish(f"round {n}", fence, b"x" * 1000)
    kept = [n for n in range(20) if await is_known(store, f"round {n}")]
    assert kept == list(range(16, 20)), "the newest, in less than 10,000 bytes"


async def test_a_round_that_is_claimed_anew_after_its_time_is_not_counted_twice() -> None:
    store = MemoryStore()
    for turn in range(50):
        now = turn * 1000.0
        fence = await claim(store, "again", now=now, expires=now + 1)
        await store.finish("again", fence, b"x" * 1000)
        assert isinstance(
            await store.claim("again", "history", now=now, lease=10.0, expires=now + 1), Recorded
        )
    await store.finish("other", await claim(store, "other", now=now), b"x")
    assert not store.is_new("again"), "one round of 1,000 bytes is far from the bound"


async def test_a_round_that_has_expired_before_it_begins_is_still_claimed() -> None:
    await claim(MemoryStore(), "late", now=10.0, expires=5.0)


async def test_rounds_and_journals_are_bounded_in_number_and_size() -> None:
    store = MemoryStore()
    for n in range(150):
        await store.finish(f"round {n}", await claim(store, f"round {n}"), b"")
        await store.put_journal(f"journal {n}", b"x" * 1000, expires=100.0)
        await store.put_journal(f"journal {n}", b"y" * 1000, expires=100.0)
    assert sum([await is_known(store, f"round {n}") for n in range(150)]) == 100
    kept = [n for n in range(150) if await store.get_journal(f"journal {n}") is not None]
    assert kept == list(range(140, 150))
    await store.purge(now=200.0)
    assert await store.get_journal("journal 149") is None
    for n in range(10):
        await store.put_journal(f"new {n}", b"x" * 1000, expires=300.0)
    assert await store.get_journal("new 0") is not None


async def test_a_round_that_runs_is_not_forgotten_for_others() -> None:
    store = MemoryStore()
    fence = await claim(store, "long")
    for n in range(250):
        await store.finish(f"round {n}", await claim(store, f"round {n}"), b"x" * 200)
    assert await store.renew({"long": Renewal(fence, 100.0)}, until=15.0) == {"long": True}
    assert await store.commit("long", fence, {"s:step": Entry("step", "d", 1)})


async def test_what_is_done_is_forgotten_before_what_was_given_back() -> None:
    store = MemoryStore()
    for n in range(50):
        fence = await claim(store, f"released {n}")
        await store.commit(f"released {n}", fence, {"s:step": Entry("step", "d", n)})
        await store.release(f"released {n}", fence)
    for n in range(50):
        await store.finish(f"done {n}", await claim(store, f"done {n}"), b"")
    for n in range(60):
        await claim(store, f"running {n}")
    assert not any([await is_known(store, f"done {n}") for n in range(50)])
    assert [n for n in range(50) if await is_known(store, f"released {n}")] == list(range(10, 50))


async def test_where_all_rounds_run_no_other_is_claimed() -> None:
    store = MemoryStore()
    fences = [await claim(store, f"round {n}") for n in range(100)]
    with pytest.raises(StoreUnavailable, match=r"100 rounds .* run right now"):
        await claim(store, "one more")
    assert store.is_new("one more")
    await store.release("round 7", fences[7])
    await claim(store, "one more")
    assert await store.renew({"round 0": Renewal(fences[0], 100.0)}, until=10.0) == {"round 0": True}


async def test_where_running_rounds_hold_all_the_bytes_no_other_is_claimed() -> None:
    store = MemoryStore()
    fence = await claim(store, "large")
    assert await store.commit("large", fence, {"s:step": Entry("step", "d", "x" * 20_000)})
    with pytest.raises(StoreUnavailable, match="bytes"):
        await claim(store, "one more")
    assert await store.finish("large", fence, b"")
    await claim(store, "one more")


async def test_an_entry_that_is_committed_again_is_not_counted_twice() -> None:
    store = MemoryStore()
    fence = await claim(store, "again")
    for _ in range(100):
        assert await store.commit("again", fence, {"s:step": Entry("step", "d", "x" * 1000)})
    await claim(store, "one more")
