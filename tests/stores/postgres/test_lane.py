"""Connections that are reserved for one purpose."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ekiden.stores.postgres import PostgresStore, lane, listening, schema, session
from ekiden.stores.postgres.database import PostgresDatabase
from ekiden.stores.postgres.lane import Lane
from ekiden.stores.postgres.session import connect, cut_after
from ekiden.testing.task_contract import new_record
from tests.serving import PATIENCE, soon


def _in_a_loop_of_its_own(work: Callable[[], object]) -> bool:
    """Whether `work` has ended in time. It is in a thread, because it may hang."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return not thread.is_alive()


def test_a_loop_ends_although_somebody_still_uses_a_store_that_was_closed(database: str) -> None:
    async def left_behind() -> None:
        store = PostgresStore(database)
        await store.look("round", "history", now=1.0)
        await store.close()
        late = asyncio.create_task(store.look("round", "history", now=1.0))
        for _ in range(3):  # Now it is connecting, and the end of the loop cancels it.
            await asyncio.sleep(0)
        assert not late.done()

    assert _in_a_loop_of_its_own(lambda: asyncio.run(left_behind()))


async def test_who_waits_too_long_for_a_connection_is_told_that_all_are_in_use(database: str) -> None:
    few = Lane(database, most=1, wait_seconds=PATIENCE)
    async with few.connection():
        with pytest.raises(TimeoutError, match=r"all 1 connections were in use for 0.2 s"):
            async with few.connection(within=0.2):
                pass
    async with few.connection(within=PATIENCE) as connection:  # Who gave up took none with it.
        await connection.execute("SELECT 1")
    await few.close()


async def test_a_caller_that_is_cancelled_loses_no_connection(database: str) -> None:
    base = PostgresDatabase(database, most_connections=1)

    async def slow() -> None:
        async with base.reading() as connection:
            began.set()
            await connection.execute("SELECT pg_sleep(60)")

    for _ in range(3):
        began = asyncio.Event()
        task = asyncio.create_task(slow())
        await soon(began.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(task)
    async with base.reading() as connection:
        await connection.execute("SELECT 1")
    await base.close()


async def test_connections_that_nobody_needs_for_long_are_closed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "_IDLE_SECONDS", 0.0)
    few = Lane(database, most=2, wait_seconds=5.0)
    async with few.connection() as first, few.connection() as second:
        assert isinstance(first, psycopg.AsyncConnection)
    assert [connection for _, connection in few._idle] == [first]
    assert second.closed
    await few.close()
    assert first.closed


async def test_a_connection_that_is_in_use_while_its_lane_is_closed_is_closed_afterwards(
    database: str,
) -> None:
    few = Lane(database, most=2, wait_seconds=PATIENCE)
    async with few.connection() as connection:
        await few.close()
        await connection.execute("SELECT 1")
    assert connection.closed
    assert few._idle == []


async def test_a_connection_that_was_cut_while_nobody_used_it_is_replaced(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "_FRESH_SECONDS", -1.0)
    few = Lane(database, most=2, wait_seconds=PATIENCE)
    async with few.connection() as sound:
        pass
    async with few.connection() as again:
        assert again is sound
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (sound.info.backend_pid,))
    async with few.connection() as another:
        await another.execute("SELECT 1")
    assert another is not sound
    assert sound.closed
    await few.close()


@pytest.mark.parametrize(("seconds", "tests"), [(60.0, 0), (-1.0, 3)])
async def test_a_connection_that_was_just_used_is_not_tested_again(
    database: str, monkeypatch: pytest.MonkeyPatch, seconds: float, tests: int
) -> None:
    monkeypatch.setattr(lane, "_FRESH_SECONDS", seconds)
    few, tested = Lane(database, most=2, wait_seconds=PATIENCE), list[object]()
    is_good = few._is_good

    async def noted(connection: psycopg.AsyncConnection[Any]) -> bool:
        tested.append(connection)
        return await is_good(connection)

    monkeypatch.setattr(few, "_is_good", noted)
    for _ in range(4):
        async with few.connection() as connection:
            await connection.execute("SELECT 1")
    assert len(tested) == tests
    await few.close()


async def test_a_connection_that_cannot_be_set_up_is_closed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[psycopg.AsyncConnection[Any]] = []

    async def fails(connection: psycopg.AsyncConnection[Any], seconds: float) -> None:
        made.append(connection)
        raise psycopg.OperationalError("out of shared memory")

    monkeypatch.setattr(session, "prepare_session", fails)
    with pytest.raises(psycopg.OperationalError, match="out of shared memory"):
        await connect(database, PATIENCE)
    assert [connection.closed for connection in made] == [True]


async def test_the_tables_are_looked_at_once_however_many_come_first(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, check = list[object](), schema.check

    async def counted(connection: schema.Connection) -> None:
        checks.append(connection)
        await check(connection)

    monkeypatch.setattr(schema, "check", counted)
    store = PostgresStore(database)
    assert await asyncio.gather(*(store.get_journal(f"{number}") for number in range(10))) == [None] * 10
    assert len(checks) == 1
    await store.close()


async def test_a_connection_that_was_closed_by_itself_is_not_cut_later(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await connect(database, PATIENCE)
    cut = asyncio.Event()
    with cut_after(connection, 0.0):
        await connection.close()
        asyncio.get_running_loop().call_later(0.0, cut.set)
        await soon(cut.wait())
    assert caplog.records == []


async def test_who_hears_nothing_for_long_still_listens(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now and then the connection is tested, between two waits."""
    monkeypatch.setattr(listening, "_PING_SECONDS", 0.02)
    pings, cut = asyncio.Queue[float](), listening.cut_after

    def noted(connection: psycopg.AsyncConnection[Any], seconds: float) -> Any:
        pings.put_nowait(seconds)
        return cut(connection, seconds)

    monkeypatch.setattr(listening, "cut_after", noted)
    store, heard = PostgresStore(database), asyncio.Queue[bytes | None]()
    await store.bus.listen(heard.put_nowait)
    for _ in range(4):  # The first is for LISTEN itself.
        await soon(pings.get())
    other = PostgresStore(database)
    other.bus.publish(b"at last")
    assert await soon(heard.get()) == b"at last"
    await other.close()
    await store.close()


@pytest.mark.parametrize("what", ["tasks", "bus"])
async def test_who_listens_no_more_has_no_connection_for_that(database: str, what: str) -> None:
    """It comes back with the next who listens."""
    store, other = PostgresStore(database), PostgresStore(database)
    heard = asyncio.Queue[object]()

    async def listens() -> Callable[[], None]:
        if what == "bus":
            return await store.bus.listen(heard.put_nowait)
        return store.tasks.watch(heard.put_nowait)

    first, last = await listens(), await listens()
    await listening_connections(database, 1)
    first()
    other.bus.publish(b"for the last")
    await other.tasks.insert(new_record(), {})
    await soon(heard.get())
    last()
    await listening_connections(database, 0)
    await listens()
    await listening_connections(database, 1)
    await other.close()
    await store.close()
    await listening_connections(database, 0)


async def listening_connections(database: str, wanted: int) -> None:
    """Wait until there are so many."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND query LIKE 'LISTEN%' AND state = 'idle'"
    )
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as watching:
        async with asyncio.timeout(PATIENCE):
            while await (await watching.execute(query)).fetchone() != (wanted,):
                await asyncio.sleep(0.01)
