"""Leases are renewed although the event loop is blocked, and not for ever."""

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ekiden import Context, Server, TaskLimits
from ekiden.rounds.ledger import Busy
from ekiden.server.rounds.owning.claim import RoundClaim
from ekiden.server.rounds.owning.once import Once
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from ekiden.tasks.leases import standby
from ekiden.tasks.leases.standby import Standby
from ekiden.tasks.queue import _WATCH_SECONDS
from tests.simulation.virtual_time import VirtualTimeLoop
from tests.tasks.driving import PATIENCE, QUICK, TaskClient, new_server

LEASE = QUICK.lease_seconds


@pytest.fixture(params=["sqlite", "postgres"])
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Opens the same store for another event loop."""
    if request.param == "sqlite":
        return lambda: SQLiteStore(tmp_path / "tasks.db")
    url = request.getfixturevalue("database")
    return lambda: PostgresStore(url)


@contextlib.contextmanager
def beside(server: Server, store: Any) -> Iterator[None]:
    """A worker in a thread, with an event loop of its own."""
    ready, done = threading.Event(), threading.Event()

    async def work() -> None:
        async with server.running():
            ready.set()
            await asyncio.to_thread(done.wait, PATIENCE)
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield
    finally:
        done.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()


async def test_a_task_is_not_taken_over_while_its_step_blocks_the_event_loop(
    open_again: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """With a lease that a disk which stands still for a second does not use up."""
    began: list[tuple[str, int]] = []
    limits = TaskLimits(lease_seconds=1.5, sweep_seconds=0.1, message_seconds=0.05, poll_seconds=0.01)

    def deploy(number: int, store: Any) -> Server:
        server = new_server(store, tasks=limits)

        async def work(step: str) -> int:
            began.append((step, number))
            time.sleep(2.5 * limits.lease_seconds)
            return number

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            return " ".join([str(await ctx.step(work, step)) for step in ("one", "two")])

        return server

    first_store, second_store = open_again(), open_again()
    first, second = deploy(1, first_store), deploy(2, second_store)
    async with first.running():
        task_id = await TaskClient(first).start()
        with caplog.at_level(logging.WARNING), beside(second, second_store):
            assert await TaskClient(first).text(task_id) == "1 1"
    assert began == [("one", 1), ("two", 1)]
    assert sum("The event loop is blocked" in line for line in caplog.messages) in (1, 2)
    await first_store.close()


async def claimed(once: Once, round_id: str = "flow.1") -> RoundClaim:
    claim = RoundClaim(once, round_id, "token", {})
    await claim.own()
    return claim


async def owner_of(store: Any, claim: RoundClaim) -> Busy:
    """Who has the round, as another process sees it."""
    found = await store.claim(
        "flow.1", claim.history, now=time.time(), lease=LEASE, expires=time.time() + 100
    )
    assert isinstance(found, Busy)
    return found


async def test_a_round_is_not_taken_over_while_the_event_loop_is_blocked(
    open_again: Callable[[], Any],
) -> None:
    store, other = open_again(), open_again()
    once = Once(store, time.time, lease=LEASE, keep=100.0, standby=Standby(store.another, LEASE))
    claim = await claimed(once)
    before = await owner_of(other, claim)
    time.sleep(3 * LEASE)
    after = await owner_of(other, claim)
    assert after.fence == before.fence
    assert after.leased_until > time.time()
    assert claim.is_sure(), "what the thread has renewed need not be renewed before the next step"
    await claim.release()
    assert once.standby is not None
    await once.standby.stop()
    await store.close()
    await other.close()


async def test_many_rounds_are_kept_while_python_computes_in_the_event_loop(
    open_again: Callable[[], Any],
) -> None:
    """The thread gets the interpreter only now and then: with a statement for each it would be too slow."""
    store, lease, renewed = open_again(), 2.0, list[int]()
    await store.migrate()

    def another() -> Any:
        opened = store.another()
        renew = opened.renew

        async def counted(together: Any, **more: Any) -> Any:
            done = await renew(together, **more)
            renewed.append(len(together))
            return done

        opened.renew = counted
        return opened

    once = Once(store, time.time, lease=lease, keep=100.0, standby=Standby(another, lease))
    claims = [RoundClaim(once, f"flow.{number}", "token", {}) for number in range(300)]
    await asyncio.gather(*(claim.own() for claim in claims))
    began = time.monotonic()
    while len(renewed) < 3 and time.monotonic() < began + 60:
        pass  # This is what computes.
    assert renewed[:3] == [300] * 3, "all of them each time"
    assert min(claim._lease.asked.loop for claim in claims) > began  # type: ignore[union-attr]
    await asyncio.gather(*(claim.release() for claim in claims))
    assert once.standby is not None
    await once.standby.stop()
    await store.close()


async def test_an_event_loop_that_is_blocked_for_too_long_loses_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "_STUCK_SECONDS", 2 * LEASE)
    store = SQLiteStore(tmp_path / "rounds.db")
    once = Once(store, time.time, lease=LEASE, keep=100.0, standby=Standby(store.another, LEASE))  # type: ignore[arg-type]
    claim = await claimed(once)
    began = time.time()
    time.sleep(5 * LEASE)
    with contextlib.closing(sqlite3.connect(tmp_path / "rounds.db")) as connection:
        ((leased_until,),) = connection.execute("SELECT leased_until FROM rounds").fetchall()
    assert began + 2 * LEASE < leased_until < time.time()
    await claim.release()
    assert once.standby is not None
    await once.standby.stop()
    await store.close()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "ekiden-standby"]


async def test_the_thread_ends_when_there_is_nothing_to_renew_and_comes_back(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "rounds.db")
    once = Once(store, time.time, lease=0.06, keep=100.0, standby=Standby(store.another, 0.06))  # type: ignore[arg-type]
    for round_id in ("flow.1", "flow.2"):
        claim = await claimed(once, round_id)
        assert threads() == ["ekiden-standby"]
        await claim.release()
        async with asyncio.timeout(PATIENCE):
            while threads():
                await asyncio.sleep(0.01)
    await store.close()


async def test_a_server_that_stops_ends_the_thread(tmp_path: Path) -> None:
    server = new_server(f"sqlite:///{tmp_path / 'tasks.db'}")

    @server.tool(task="required")
    async def tool() -> str:
        return "done"

    async with server.running():
        assert await TaskClient(server).text(await TaskClient(server).start()) == "done"
        assert threads() == ["ekiden-standby"]
    assert threads() == []


async def test_a_store_that_is_away_does_not_end_the_thread(tmp_path: Path) -> None:
    store, other = SQLiteStore(tmp_path / "rounds.db"), SQLiteStore(tmp_path / "rounds.db")
    opened: list[int] = []

    def another() -> SQLiteStore:
        opened.append(len(opened))
        return SQLiteStore(tmp_path / "nowhere" / "rounds.db" if len(opened) == 1 else tmp_path / "rounds.db")

    once = Once(store, time.time, lease=LEASE, keep=100.0, standby=Standby(another, LEASE))
    claim = await claimed(once)
    time.sleep(2 * LEASE)
    assert len(opened) > 1
    assert (await owner_of(other, claim)).leased_until > time.time()
    await claim.release()
    assert once.standby is not None
    await once.standby.stop()
    await store.close()
    await other.close()


async def test_leases_of_an_event_loop_that_is_closed_are_not_renewed_by_the_next(tmp_path: Path) -> None:
    store, other = SQLiteStore(tmp_path / "rounds.db"), SQLiteStore(tmp_path / "rounds.db")
    once = Once(store, time.time, lease=LEASE, keep=100.0, standby=Standby(store.another, LEASE))  # type: ignore[arg-type]

    def begin() -> RoundClaim:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(claimed(once))
        finally:
            loop.close()

    abandoned = await asyncio.to_thread(begin)
    later = await claimed(once, "flow.2")
    time.sleep(2 * LEASE)
    assert (await owner_of(other, abandoned)).leased_until < time.time()
    assert len(threads()) == 1
    await later.release()
    assert once.standby is not None
    await once.standby.stop()
    await store.close()
    await other.close()


async def test_a_clock_that_is_set_back_does_not_keep_the_thread_from_renewing(tmp_path: Path) -> None:
    store, other = SQLiteStore(tmp_path / "rounds.db"), SQLiteStore(tmp_path / "rounds.db")
    shift = 0.0
    once = Once(
        store,
        lambda: time.time() + shift,
        lease=LEASE,
        keep=100.0,
        standby=Standby(store.another, LEASE),  # type: ignore[arg-type]
    )
    claim = await claimed(once)
    before = await owner_of(other, claim)
    shift = -60.0
    time.sleep(2 * LEASE)
    assert (await owner_of(other, claim)).leased_until != before.leased_until, "others see that it lives"
    await claim.release()
    assert once.standby is not None
    await once.standby.stop()
    await store.close()
    await other.close()


class Holder:
    """One lease that can be made late, as in `Leaseholder`."""

    def __init__(self, problem: Exception | None = None, seconds: float = 0.0) -> None:
        self.problem = problem
        self.seconds = seconds
        self.looked = self.renewed = 0

    def is_late(self) -> bool:
        self.looked += 1
        if self.problem is not None and self.looked == 1:
            raise self.problem
        return not self.renewed

    async def renew_by(self, store: Any) -> None:
        async with store.room:
            await asyncio.sleep(self.seconds)
        self.renewed += 1


class OneAtATime:
    """A store that renews one lease after another, as `LeaseStore`."""

    def __init__(self) -> None:
        self.room = asyncio.Lock()

    async def close(self) -> None:
        """Nothing is open."""


async def until_renewed(*holders: Holder) -> None:
    async with asyncio.timeout(PATIENCE):
        while not all(holder.renewed for holder in holders):
            await asyncio.sleep(0.01)


async def test_a_look_that_fails_does_not_end_the_thread() -> None:
    watching, holder = Standby(OneAtATime, 0.08), Holder(RuntimeError("the clock"))  # type: ignore[arg-type]
    watching.add(holder)
    await until_renewed(holder)
    await watching.stop()


async def test_an_event_loop_that_cannot_be_made_does_not_end_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, tries = asyncio.new_event_loop, list[int]()

    def fail_twice() -> asyncio.AbstractEventLoop:
        tries.append(1)
        if len(tries) <= 2:
            raise OSError("too many open files")
        return make()

    monkeypatch.setattr(asyncio.events, "new_event_loop", fail_twice)
    watching, holder = Standby(OneAtATime, 0.08), Holder()  # type: ignore[arg-type]
    watching.add(holder)
    await until_renewed(holder)
    assert len(tries) == 3
    await watching.stop()


async def test_what_takes_too_long_goes_on_with_the_same_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio.events, "new_event_loop", VirtualTimeLoop)  # The thread's.
    opened: list[OneAtATime] = []

    def another() -> Any:
        opened.append(OneAtATime())
        return opened[-1]

    watching, holders = Standby(another, 0.4), [Holder(seconds=0.06) for _ in range(10)]
    for holder in holders:
        watching.add(holder)
    await until_renewed(*holders)
    assert len(opened) == 1
    await watching.stop()


async def test_one_that_cannot_be_renewed_does_not_break_the_others_off() -> None:
    class Failing(Holder):
        async def renew_by(self, store: Any) -> None:
            raise RuntimeError("not this one")

    opened: list[OneAtATime] = []

    def another() -> Any:
        opened.append(OneAtATime())
        return opened[-1]

    watching, good = Standby(another, 0.08), Holder(seconds=0.005)
    watching.add(Failing())
    watching.add(good)
    await until_renewed(good)
    await watching.stop()


async def test_a_store_that_does_not_close_does_not_hold_the_thread_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio.events, "new_event_loop", VirtualTimeLoop)  # The thread's.

    class Stuck(OneAtATime):
        async def close(self) -> None:
            await asyncio.sleep(3600)

    class FailingOnce(Holder):
        async def renew_by(self, store: Any) -> None:
            if not tries:
                tries.append(1)
                raise RuntimeError("once")
            await super().renew_by(store)

    tries: list[int] = []
    watching, holder = Standby(Stuck, 0.08), FailingOnce()  # type: ignore[arg-type]
    watching.add(holder)
    await until_renewed(holder)
    await watching.stop()
    assert not watching._watching


class _Late:
    """Its lease is over from the start, as if the clock had been set forward."""

    def __init__(self) -> None:
        self.renewed = threading.Event()

    def is_late(self) -> bool:
        return True

    async def renew_by(self, store: Any) -> None:
        self.renewed.set()


async def test_a_lease_that_is_over_by_a_clock_that_was_set_forward_is_renewed_before_others_take_it() -> (
    None
):
    holder, watches = _Late(), Standby(lambda: SQLiteStore(":memory:"), lease_seconds=60.0)
    began = time.monotonic()
    watches.add(holder)
    assert await asyncio.to_thread(holder.renewed.wait, PATIENCE)
    await watches.stop()
    assert time.monotonic() - began < _WATCH_SECONDS
