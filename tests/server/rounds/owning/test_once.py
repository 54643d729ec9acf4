"""A claimed round has one owner, whatever becomes of the store, of clients and of processes."""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from ekiden import Context, RoundLimits, Server, StoreUnavailable
from ekiden.rounds.journal import Entry
from ekiden.rounds.outcome import Complete, Failed
from ekiden.server.rounds.owning.claim import RoundClaim
from ekiden.server.rounds.owning.once import Once
from ekiden.signals import Ended
from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing import CallFailed, Round
from scripts.postgres import Postgres, running_postgres
from tests.acceptance.driving import Client, accept, error_text, new_server, soon, text
from tests.simulation.loop import VirtualLoop
from tests.simulation.world import WORKER

LEASE = 0.6


class Work:
    """A step that the test can hold, and that counts how often it began."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def do(self, what: str = "work") -> str:
        self.begun.append(what)
        self.has_begun.set()
        await self.may_end.wait()
        return f"{what} {len(self.begun)}"


def working(work: Work, store: Any, *, lease: float = LEASE, once: Any = "auto") -> Server:
    server = new_server(store=store, rounds=RoundLimits(lease_seconds=lease))

    @server.tool(once=once)
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("ok?", bool, key="k")
        return await ctx.step(work.do, key="work") if answer.data else "nothing done"

    return server


async def said_yes(client: Client, first: Round) -> str:
    return text(await client.retry(first, {"k": accept(True)}))


def held_by(once: Any) -> int:
    """How much of rounds it holds on to."""
    others = {name: value for name, value in vars(once).items() if name != "_leases"}
    held = sum(len(leases._held) for leases in once._leases.values())
    return held + sum(len(value) for value in others.values() if hasattr(value, "__len__"))


def leased(path: Path) -> int:
    """How many rounds are claimed and have not ended."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT leased_until FROM rounds WHERE outcome IS NULL").fetchall()
    return sum(until > time.time() for (until,) in found)


async def renewals() -> list[str]:
    """The tasks that renew a lease. One that was cancelled gets a moment to end."""
    await asyncio.sleep(0)
    running = [str(task.get_coro()) for task in asyncio.all_tasks() if not task.done()]
    return [task for task in running if "._renew" in task]


# The store fails


async def test_one_error_of_the_store_does_not_end_the_renewal_of_a_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [SQLiteStore(tmp_path / "rounds.db") for _ in range(2)]
    renew, errors = stores[0].renew, [StoreUnavailable("away"), OSError("odd")]

    async def flaky(*arguments: Any, **more: Any) -> Any:
        if errors:
            raise errors.pop()
        return await renew(*arguments, **more)

    stores[0].renew = flaky  # type: ignore[method-assign]  # the fault that is tested
    work = Work()
    one, other = (Client(working(work, store)) for store in stores)
    first = await one.ask("tool")
    running = asyncio.create_task(said_yes(one, first))
    await soon(work.has_begun.wait())
    repeat = asyncio.create_task(said_yes(other, first))
    done, _ = await asyncio.wait({running, repeat}, timeout=4 * LEASE)
    assert not done
    assert not errors
    assert "are not renewed yet: OSError('odd')" in caplog.text
    work.may_end.set()
    assert await running == await repeat == "work 1"
    for store in stores:
        await store.close()


async def test_a_step_that_has_run_is_committed_when_the_store_is_back(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "rounds.db")
    commit, errors = store.commit, [StoreUnavailable("away") for _ in range(4)]

    async def flaky(*arguments: Any, **more: Any) -> bool:
        if errors:
            raise errors.pop()
        return await commit(*arguments, **more)

    store.commit = flaky  # type: ignore[method-assign]  # the fault that is tested
    work = Work()
    work.may_end.set()
    client = Client(working(work, store))
    first = await client.ask("tool")
    assert await said_yes(client, first) == await said_yes(client, first) == "work 1"
    assert not errors
    await store.close()


@pytest.fixture
def own_postgres() -> Generator[Postgres, None, None]:
    """One that this test may stop."""
    with running_postgres() as server:
        yield server


def stopped(postgres: Postgres) -> Callable[[], None]:
    postgres.stop()
    return postgres.start


def frozen(postgres: Postgres) -> Callable[[], None]:
    postgres.freeze()
    return postgres.thaw


@pytest.mark.parametrize("take_away", [stopped, frozen])
async def test_a_step_begins_once_though_postgres_is_away_for_longer_than_a_lease(
    own_postgres: Postgres, take_away: Callable[[Postgres], Callable[[], None]]
) -> None:
    url = own_postgres.new_database()
    stores = [PostgresStore(url) for _ in range(2)]
    await stores[0].migrate()
    work = Work()
    one, other = (Client(working(work, store, lease=1.0)) for store in stores)
    first = await one.ask("tool")
    running = asyncio.create_task(said_yes(one, first))
    await soon(work.has_begun.wait())
    early = asyncio.create_task(said_yes(other, first))
    await asyncio.wait({running, early}, timeout=0.5)
    bring_back = await asyncio.to_thread(take_away, own_postgres)
    await asyncio.wait({running}, timeout=2.5)
    await asyncio.to_thread(bring_back)
    late = asyncio.create_task(said_yes(other, first))
    await asyncio.wait({running, late}, timeout=4.0)
    work.may_end.set()
    ends = await asyncio.gather(running, early, late, return_exceptions=True)
    assert work.begun == ["work"]
    assert ends[0] == ends[2] == "work 1"
    assert ends[1] == "work 1" or isinstance(ends[1], CallFailed), "who asked meanwhile may hear of it"
    for store in stores:
        await store.close()


async def test_a_renewal_that_hangs_is_left_behind_for_the_next(tmp_path: Path) -> None:
    """A connection may be dead without a sign of it, and take long to be cancelled."""
    stores = [SQLiteStore(tmp_path / "rounds.db") for _ in range(2)]
    renew, hang = stores[0].renew, asyncio.Event()
    hung: list[bool] = []

    async def stuck(*arguments: Any, **more: Any) -> Any:
        if not hung:
            hung.append(True)
            while not hang.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await hang.wait()
        return await renew(*arguments, **more)

    stores[0].renew = stuck  # type: ignore[method-assign]  # the fault that is tested
    work = Work()
    one, other = (Client(working(work, store, lease=1.5)) for store in stores)
    first = await one.ask("tool")
    running = asyncio.create_task(said_yes(one, first))
    await soon(work.has_begun.wait())
    repeat = asyncio.create_task(said_yes(other, first))
    done, _ = await asyncio.wait({running, repeat}, timeout=4.0)
    hang.set()
    assert hung
    assert not done
    work.may_end.set()
    assert await running == await repeat == "work 1"
    assert work.begun == ["work"]
    for store in stores:
        await store.close()


async def test_a_round_that_may_have_been_lost_begins_no_other_step(tmp_path: Path) -> None:
    """Its process stood still; somebody else has run the round meanwhile."""
    stores = [SQLiteStore(tmp_path / "rounds.db") for _ in range(2)]
    one, other = (Once(store, time.time, lease=0.2, keep=100.0) for store in stores)
    mine, theirs = (RoundClaim(once, "flow.1", "token", {}) for once in (one, other))
    await mine.own()
    taking = asyncio.create_task(theirs.own())
    await asyncio.wait({taking}, timeout=0.05)
    await freeze(stores[0], until=taking)
    with pytest.raises(Ended):
        await mine.recall()
    assert mine.lost
    with pytest.raises(Ended):
        await mine.commit({"s:1": Entry("step", "", 1)})
    assert await theirs.finish(Complete({"theirs": True})) == Complete({"theirs": True})
    assert await mine.finish(Complete({"mine": True})) == Complete({"theirs": True})
    assert not await renewals()
    assert held_by(one) == held_by(other) == 0
    for store in stores:
        await store.close()


async def freeze(store: SQLiteStore, until: "asyncio.Task[Any]") -> None:
    """Let nothing reach the store until something has happened."""
    renew = store.renew

    async def never(*arguments: Any, **more: Any) -> Any:
        raise StoreUnavailable("frozen")

    store.renew = never  # type: ignore[method-assign]  # the fault that is tested
    await soon(asyncio.wait({until}))
    store.renew = renew  # type: ignore[method-assign]  # it is over


async def test_a_dead_owner_is_replaced(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "rounds.db")
    once = Once(store, time.time, lease=LEASE, keep=100.0)
    dead, alive = (RoundClaim(once, "flow.1", "token", {}) for _ in range(2))
    await store.migrate()
    started, now = time.monotonic(), time.time()
    await store.claim("flow.1", dead.history, now=now, lease=LEASE, expires=now + 100)
    assert (await soon(alive.own())).fence == 2
    assert time.monotonic() - started > 0.9 * LEASE
    await alive.release()
    await store.close()


def test_a_dead_owner_is_replaced_after_a_lease_and_a_half() -> None:
    """In virtual time: on a busy machine the owner is watched for longer, and rightly."""
    loop = VirtualLoop(WORKER)

    async def main() -> float:
        store = MemoryStore()
        once = Once(store, loop.time, lease=LEASE, keep=100.0)
        dead, alive = (RoundClaim(once, "flow.1", "token", {}) for _ in range(2))
        await store.claim("flow.1", dead.history, now=0.0, lease=LEASE, expires=100.0)
        assert (await alive.own()).fence == 2
        took = loop.time()
        await alive.release()
        return took

    assert 0.9 * LEASE < loop.run_until_complete(main()) < 1.75 * LEASE
    loop.close()


async def repeated(once: Once, patience: float) -> RoundClaim:
    """Claim a round as clients do that give up soon and repeat it, until it is claimed."""
    while True:
        claim = RoundClaim(once, "flow.1", "token", {})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await claim.own()
            return claim


def test_a_dead_owner_is_replaced_although_no_repeat_waits_for_half_a_lease() -> None:
    """At each of two processes, to which the repeats go in turn."""
    loop = VirtualLoop(WORKER)

    async def main() -> float:
        store = MemoryStore()
        one, other = (Once(store, loop.time, lease=LEASE, keep=100.0) for _ in range(2))
        history = RoundClaim(one, "flow.1", "token", {}).history
        await store.claim("flow.1", history, now=0.0, lease=LEASE, expires=100.0)
        claims = [asyncio.create_task(repeated(once, LEASE / 4)) for once in (one, other)]
        done, _ = await asyncio.wait(claims, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        took = loop.time()
        # A repeat that is given up in the moment in which it gets the round gives it back: one more owner.
        assert [(await task.result().own()).fence > 1 for task in done] == [True]
        for task in claims:
            task.cancel()
            await asyncio.wait({task})
        for task in done:
            await task.result().release()
        for once in (one, other):
            await once.stop()
            assert held_by(once) == 0
        return took

    assert 0.9 * LEASE < loop.run_until_complete(main()) < 2 * LEASE
    loop.close()


class SlowPurge(MemoryStore):
    """Removes what has expired as soon as the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.purging, self.may_end, self.purged = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def purge(self, *, now: float) -> None:
        self.purging.set()
        await self.may_end.wait()
        self.purged.set()


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_no_call_waits_until_what_has_expired_is_removed(is_stopped: bool) -> None:
    store, now = SlowPurge(), [0.0]
    once = Once(store, lambda: now[0], lease=LEASE, keep=100.0)
    now[0] = 301.0
    claim = RoundClaim(once, "flow.1", "token", {})
    await soon(claim.own())
    await soon(claim.finish(Complete({})))
    await soon(store.purging.wait())
    if not is_stopped:
        store.may_end.set()
        await soon(store.purged.wait())
    await soon(once.stop())
    store.may_end.set()
    await asyncio.sleep(0)
    assert store.purged.is_set() is not is_stopped


async def test_what_has_expired_is_looked_for_every_five_minutes_and_never_twice_at_once() -> None:
    store, now = SlowPurge(), [0.0]
    once = Once(store, lambda: now[0], lease=LEASE, keep=100.0)
    looked = list[float]()
    for moment in (10.0, 300.0, 300.5, 301.0, 700.0, 701.0, 1000.0, 1002.0, 1003.0):
        now[0] = moment
        once.tidy()
        for _ in range(3):
            await asyncio.sleep(0)
        if store.purging.is_set():
            looked.append(moment)
            store.purging.clear()
        if moment == 700.0:
            store.may_end.set()  # The first look took until now.
            await soon(store.purged.wait())
            await asyncio.sleep(0)
    assert looked == [300.5, 701.0, 1002.0]
    await soon(once.stop())


async def test_a_server_that_lives_for_one_call_removes_what_has_expired_before_it_stops() -> None:
    store, now = SlowPurge(), [0.0]
    once = Once(store, lambda: now[0], lease=LEASE, keep=100.0)
    now[0] = 301.0
    once.tidy()
    stopping = asyncio.create_task(once.stop())
    await soon(store.purging.wait())
    assert not stopping.done()
    store.may_end.set()
    await soon(stopping)
    assert store.purged.is_set()


async def test_a_living_owner_keeps_its_round_however_often_it_is_repeated(tmp_path: Path) -> None:
    stores = [SQLiteStore(tmp_path / "rounds.db") for _ in range(2)]
    one, other = (Once(store, time.time, lease=LEASE, keep=100.0) for store in stores)
    mine = RoundClaim(one, "flow.1", "token", {})
    await mine.own()
    impatient = asyncio.create_task(repeated(other, LEASE / 4))
    await asyncio.wait({impatient}, timeout=3 * LEASE)
    assert not impatient.done()
    assert not mine.lost
    impatient.cancel()
    await asyncio.wait({impatient})
    assert await soon(mine.finish(Complete({}))) == Complete({})
    async with asyncio.timeout(20):  # The owner is watched for a while, and no longer than there is one.
        while held_by(other):
            await asyncio.sleep(0.01)
    for store in stores:
        await store.close()


async def test_a_round_that_its_owner_gave_back_is_not_kept_by_who_watches(tmp_path: Path) -> None:
    stores = [SQLiteStore(tmp_path / "rounds.db") for _ in range(2)]
    one, other = (Once(store, time.time, lease=LEASE, keep=100.0) for store in stores)
    mine = RoundClaim(one, "flow.1", "token", {})
    await mine.own()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(LEASE / 4):
            await RoundClaim(other, "flow.1", "token", {}).own()
    await mine.release()
    async with asyncio.timeout(20):
        while held_by(other):
            await asyncio.sleep(0.01)
    again = RoundClaim(one, "flow.1", "token", {})
    assert (await soon(again.own())).fence > 1
    await again.release()
    for store in stores:
        await store.close()


# Clients leave, and handlers fail


async def test_a_commit_is_not_broken_off_when_the_client_leaves(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "rounds.db")
    commit, is_away, tried = store.commit, [True], asyncio.Event()

    async def flaky(*arguments: Any, **more: Any) -> bool:
        tried.set()
        if is_away:
            raise StoreUnavailable("away")
        return await commit(*arguments, **more)

    store.commit = flaky  # type: ignore[method-assign]  # the fault that is tested
    work = Work()
    work.may_end.set()
    server = working(work, store)
    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        leaving = asyncio.create_task(said_yes(client, first))
        await soon(tried.wait())
        leaving.cancel()
        await asyncio.wait({leaving}, timeout=0.1)
        is_away.clear()
        assert await said_yes(client, first) == "work 1"
        await asyncio.wait({leaving})
    assert work.begun == ["work"]
    await store.close()


async def test_a_call_that_failed_leaves_no_lease_and_no_renewal(tmp_path: Path) -> None:
    path = tmp_path / "rounds.db"
    store = SQLiteStore(path)
    await store.migrate()
    server = new_server(store=store, rounds=RoundLimits(lease_seconds=LEASE))

    @server.tool
    async def tool(ctx: Context) -> str:
        async def work() -> int:
            return 1

        async def fail() -> None:
            raise ValueError("failed")

        await ctx.elicit("ok?", bool, key="k")
        await asyncio.gather(ctx.step(work), fail())
        return "never"

    async with server.running():
        client = Client(server)
        for _ in range(10):
            first = await client.ask("tool")
            for _ in range(2):
                assert "failed" in error_text(await client.retry(first, {"k": accept(True)}))
        async with asyncio.timeout(5.0):
            while leased(path) or await renewals() or held_by(server._rounds.once):
                await asyncio.sleep(0.01)
    await store.close()


class Slow(MemoryStore):
    """A ledger whose claims are on their way for as long as the test wants."""

    waits = True

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def claim(self, *arguments: Any, **more: Any) -> Any:
        self.asked.set()
        claim = await super().claim(*arguments, **more)
        await self.may_answer.wait()
        return claim


@pytest.mark.parametrize("end", ["release", "finish", "cancel"])
async def test_a_claim_that_arrives_after_the_end_is_given_back(end: str) -> None:
    store = Slow()
    once = Once(store, time.time, lease=LEASE, keep=100.0)
    late = RoundClaim(once, "flow.1", "token", {})
    owning = asyncio.create_task(late.own())
    await soon(store.asked.wait())
    if end == "release":
        await late.release()
    elif end == "finish":
        assert await late.finish(Complete({})) == Complete({})
    else:
        owning.cancel()
        await asyncio.sleep(0)
        owning.cancel()
    store.may_answer.set()
    await soon(asyncio.wait({owning}))
    assert owning.cancelled() or isinstance(owning.exception(), Ended)
    assert not await renewals()
    assert held_by(once) == 0
    other = RoundClaim(once, "flow.1", "another", {})
    await other.own()
    await other.release()


@pytest.mark.parametrize("end", ["release", "cancel"])
async def test_an_answer_that_arrives_after_the_end_takes_nothing_from_who_has_the_round(end: str) -> None:
    store = Slow()
    owner, once = (Once(store, time.time, lease=60.0, keep=100.0) for _ in range(2))
    mine, late = (RoundClaim(each, "flow.1", "token", {}) for each in (owner, once))
    store.may_answer.set()
    await mine.own()
    store.asked.clear()
    store.may_answer.clear()
    asking = asyncio.create_task(late.own())
    await soon(store.asked.wait())
    if end == "release":
        await late.release()
    else:
        asking.cancel()
    store.may_answer.set()
    await soon(asyncio.wait({asking}))
    assert asking.cancelled() or isinstance(asking.exception(), Ended)
    assert held_by(once) == 0
    assert await mine.finish(Complete({"mine": True})) == Complete({"mine": True})


async def test_a_store_that_fails_whoever_has_left_leaves_nothing_behind() -> None:
    store = Slow()
    once = Once(store, time.time, lease=60.0, keep=100.0)
    claim = store.claim

    async def failing(*arguments: Any, **more: Any) -> Any:
        await claim(*arguments, **more)
        raise StoreUnavailable("away")

    store.claim = failing  # type: ignore[method-assign]  # the fault that is tested
    owning = asyncio.create_task(RoundClaim(once, "flow.1", "token", {}).own())
    await soon(store.asked.wait())
    owning.cancel()
    await asyncio.sleep(0)
    store.may_answer.set()
    await soon(asyncio.wait({owning}))
    assert owning.cancelled()
    assert held_by(once) == 0


async def test_what_cannot_be_given_back_runs_out() -> None:
    store = MemoryStore()
    once = Once(store, time.time, lease=LEASE, keep=100.0)
    mine = RoundClaim(once, "flow.1", "token", {})
    await mine.own()

    async def away(*_: Any) -> None:
        raise StoreUnavailable("away")

    store.release = away  # type: ignore[method-assign, assignment]  # the fault that is tested
    await mine.release()
    assert held_by(once) == 0
    next_one = RoundClaim(once, "flow.1", "token", {})
    assert (await soon(next_one.own())).fence == 2
    await next_one.release()


async def test_an_end_that_cannot_be_recorded_is_an_error_after_a_lease() -> None:
    store = MemoryStore()
    once = Once(store, time.time, lease=0.2, keep=100.0)
    mine = RoundClaim(once, "flow.1", "token", {})
    await mine.own()

    async def away(*_: Any) -> bool:
        raise StoreUnavailable("away")

    store.finish = away  # type: ignore[method-assign, assignment]  # the fault that is tested
    with pytest.raises(StoreUnavailable):
        await soon(mine.finish(Complete({})))
    assert not await renewals()
    assert held_by(once) == 0


# Those who wait


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_contested_round_leaves_nothing_behind(tmp_path: Path, kind: str) -> None:
    store: Any = MemoryStore() if kind == "memory" else f"sqlite:///{tmp_path}/rounds.db"
    work = Work()
    servers = [working(work, store), working(work, store)]
    clients = [Client(server) for server in servers]
    first = await clients[0].ask("tool")
    repeats = [asyncio.create_task(said_yes(clients[n % 2], first)) for n in range(60)]
    await soon(work.has_begun.wait())
    for repeat in repeats[::7]:
        repeat.cancel()
    work.may_end.set()
    ends = await asyncio.gather(*repeats, return_exceptions=True)
    assert {end for end in ends if isinstance(end, str)} <= {"work 1"}
    async with asyncio.timeout(5.0):
        while any(held_by(server._rounds.once) for server in servers) or await renewals():
            await asyncio.sleep(0.01)
    assert work.begun == ["work"]


async def test_of_those_who_wait_in_one_process_one_asks_the_store(tmp_path: Path) -> None:
    stores = [SQLiteStore(tmp_path / "rounds.db") for _ in range(2)]
    claim, asked = stores[1].claim, []

    async def counted(*arguments: Any, **more: Any) -> Any:
        asked.append(time.monotonic())
        return await claim(*arguments, **more)

    stores[1].claim = counted  # type: ignore[method-assign]  # to count
    work = Work()
    one, other = (Client(working(work, store, lease=3.0)) for store in stores)
    first = await one.ask("tool")
    running = asyncio.create_task(said_yes(one, first))
    await soon(work.has_begun.wait())
    repeats = [asyncio.create_task(said_yes(other, first)) for _ in range(200)]
    await asyncio.wait(repeats, timeout=1.0)
    work.may_end.set()
    assert {await running, *await asyncio.gather(*repeats)} == {"work 1"}
    assert 2 <= len(asked) <= 25, "about ten in a second, for two hundred"
    for store in stores:
        await store.close()


async def test_a_store_that_is_away_is_away_for_all_who_wait() -> None:
    """They hear of it together, not one after another."""
    store, now = MemoryStore(), time.time()
    once = Once(store, time.time, lease=0.2, keep=100.0)
    claims = [RoundClaim(once, "flow.1", "token", {}) for _ in range(50)]
    await store.claim("flow.1", claims[0].history, now=now, lease=100.0, expires=now + 100)
    waiting = [asyncio.create_task(claim.own()) for claim in claims]
    await asyncio.wait(waiting, timeout=0.1)

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    store.claim = away  # type: ignore[method-assign]  # the fault that is tested
    started = time.monotonic()
    ends = await soon(asyncio.gather(*waiting, return_exceptions=True))
    assert all(isinstance(end, StoreUnavailable) for end in ends)
    assert time.monotonic() - started < 2.0
    assert held_by(once) == 0


# One history


@pytest.fixture(params=["nothing", "memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "nothing":
        return None
    return MemoryStore() if request.param == "memory" else f"sqlite:///{tmp_path}/rounds.db"


async def test_no_after_a_yes_that_was_acted_on_is_refused(store: Any) -> None:
    work = Work()
    client = Client(working(work, store))
    first = await client.ask("tool")
    assert text(await client.retry(first, {"k": accept(False)})) == "nothing done", "nothing was done yet"
    running = asyncio.create_task(said_yes(client, first))
    await soon(work.has_begun.wait())
    no: dict[str, Any] = {"inputResponses": {"k": accept(False)}, "requestState": first.state}
    assert (await client.refused(**no)).code == -32602
    work.may_end.set()
    assert await running == "work 1"
    assert (await client.refused(**no)).code == -32602
    assert await said_yes(client, first) == "work 1"


async def test_a_token_of_another_branch_of_history_never_gets_the_reply_of_this_one(store: Any) -> None:
    server = new_server(store=store)
    charged: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def charge(amount: int) -> str:
            charged.append(amount)
            return f"charged {amount}"

        amount = await ctx.elicit("How much?", int, key="amount")
        await ctx.elicit(f"Pay {amount.data}?", bool, key="sure")
        return await ctx.step(charge, int(amount.data or 0))

    client = Client(server)
    first = await client.ask("tool")
    five, more = [await client.retry(first, {"amount": accept(amount)}) for amount in (5, 500)]
    assert text(await client.retry(five, {"sure": accept(True)})) == "charged 5"
    error = await client.refused(inputResponses={"sure": accept(True)}, requestState=more.state)
    assert error.code == -32602
    assert text(await client.retry(five, {"sure": accept(True)})) == "charged 5"
    assert charged == [5]


async def test_a_refusal_says_why() -> None:
    once = Once(MemoryStore(), time.time, lease=LEASE, keep=100.0)
    mine = RoundClaim(once, "flow.1", "token", {})
    await mine.own()
    await mine.commit({"s:1": Entry("step", "", 1)})
    other = await RoundClaim(once, "flow.1", "another", {}).look()
    assert isinstance(other, Failed)
    assert "other answers or another requestState" in other.error.message
    await mine.release()
