"""Callers share connections and statements: so many at once, and nobody is kept from all of them."""

import asyncio
import contextlib
import gc
from collections.abc import Sequence

import psycopg
import pytest

from ekiden.stores.postgres import PostgresStore, bus, together
from ekiden.stores.postgres import tasks as postgres_tasks
from ekiden.stores.postgres.database import PostgresDatabase
from ekiden.stores.postgres.listening import MOST_BYTES
from ekiden.stores.postgres.together import Together
from ekiden.testing.task_contract import new_record
from tests.network import behind_a_network
from tests.serving import PATIENCE, soon


@pytest.mark.parametrize(("connections", "in_line"), [(5, 3), (2, 1), (1, 1)])
async def test_who_stands_in_line_leaves_connections_to_others(
    database: str, connections: int, in_line: int
) -> None:
    """Two of them, if there are so many."""
    base = PostgresDatabase(database, most_connections=connections, wait_seconds=PATIENCE)
    inside, may_go = asyncio.Queue[str](), asyncio.Event()

    async def stand_in_line() -> None:
        async with base.in_line():
            inside.put_nowait("in line")
            await may_go.wait()

    standing = [asyncio.create_task(stand_in_line()) for _ in range(connections + 3)]
    for _ in range(in_line):
        await soon(inside.get())
    async with contextlib.AsyncExitStack() as others:
        for _ in range(connections - in_line):
            await soon(others.enter_async_context(base.reading()))
        assert inside.empty()
        may_go.set()
        await soon(asyncio.gather(*standing))
    await base.close()


async def test_a_statement_has_so_many_items_and_so_many_bytes() -> None:
    batches: list[list[int]] = []

    async def run(numbers: Sequence[int]) -> list[int]:
        batches.append(list(numbers))
        await asyncio.sleep(0)
        return list(numbers)

    shared = Together(run, lanes=1)
    await asyncio.gather(*(shared.do(number) for number in range(250)))
    assert [len(batch) for batch in batches] == [100, 100, 50]
    batches.clear()
    half = together._MOST_BYTES // 2
    await asyncio.gather(*(shared.do(number, size=size) for number, size in enumerate((half, half, 1, half))))
    assert batches == [[0, 1], [2, 3]]


async def test_nobody_is_forgotten_behind_a_flood_of_principals(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One search looks at some of them; the next goes on where it ended."""
    monkeypatch.setattr(postgres_tasks, "_MOST_OTHERS", 4)
    store = PostgresStore(database)
    names = [f"user {number}" for number in range(10)]
    waiting = [new_record(f"of {name}", principal=name, due=1000.0) for name in names]
    flood = [new_record(f"flood {number}", principal="loud", due=1.0) for number in range(3)]
    await asyncio.gather(*(store.tasks.insert(record, {}) for record in (*waiting, *flood)))
    seen: list[str] = []
    for _ in range(3):
        found = await store.tasks.due("server", ("tool",), now=1000.0, limit=2)
        assert [each.principal for each in found[:2]] == ["loud", "loud"]
        seen += [each.principal for each in found[2:]]
    assert seen == names
    again = await store.tasks.due("server", ("tool",), now=1000.0, limit=2)
    assert [each.principal for each in again[2:]] == names[:3], "it begins anew"
    await store.close()


# The bus


async def test_a_message_is_heard_up_to_a_length_and_known_to_be_missed_beyond(database: str) -> None:
    """Also if this process has sent very many before."""
    one, other = PostgresStore(database), PostgresStore(database)
    heard = asyncio.Queue[bytes | None]()
    await other.bus.listen(heard.put_nowait)
    one.bus._last = 10**15
    longest = b"x" * (MOST_BYTES - bus._HEAD_BYTES)
    for message in (longest, longest + b"x", b"short"):
        one.bus.publish(message)
    assert [await soon(heard.get()) for _ in range(3)] == [longest, None, b"short"]
    await one.close()
    await other.close()


async def test_what_a_process_sent_that_is_not_remembered_any_more_is_heard_all_the_same(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "_MOST_HEARD", 2)
    store = PostgresStore(database)
    heard = asyncio.Queue[bytes | None]()
    await store.bus.listen(heard.put_nowait)
    with psycopg.connect(database, autocommit=True) as connection:
        for payload in ("a 1 a1", "b 1 b1", "a 2 a2", "c 1 c1", "b 9 b9", "a 3 a3"):
            connection.execute("SELECT pg_notify('ekiden_bus', %s)", (payload,))
    expected = [b"a1", b"b1", b"a2", b"c1", b"b9", b"a3"]
    assert [await soon(heard.get()) for _ in expected] == expected
    assert list(store.bus._heard) == ["b", "a"]
    await store.close()


async def test_who_begins_to_listen_while_the_database_is_away_is_told_that_it_missed_something(
    database: str,
) -> None:
    async with behind_a_network(database) as (network, url):
        network.cut()
        far, near = PostgresStore(url, wait_seconds=0.3), PostgresStore(database)
        heard = asyncio.Queue[bytes | None]()
        await soon(far.bus.listen(heard.put_nowait))
        near.bus.publish(b"nobody hears this")
        network.heal()
        assert await soon(heard.get()) is None
        near.bus.publish(b"and now")
        while (message := await soon(heard.get())) is None:
            pass
        assert message == b"and now"
        await far.close()
        await near.close()


@pytest.mark.filterwarnings("ignore:.* was deleted while still open:ResourceWarning")
def test_many_use_a_store_in_one_event_loop_after_another(database: str) -> None:
    """Each has connections of its own: those of a loop that has ended may lie there half way through."""
    store = PostgresStore(database, most_connections=2)

    async def use(turn: int) -> set[int]:
        async def keep(number: int) -> int:
            await store.put_journal(f"{turn} {number}", b"data", expires=100.0)
            async with store._database.reading() as connection:
                return connection.info.backend_pid

        return set(await asyncio.gather(*(keep(number) for number in range(20))))

    async def close() -> None:
        assert await store.get_journal("0 0") == await store.get_journal("1 19") == b"data"
        await store.close()

    first, second = (asyncio.run(use(turn)) for turn in range(2))
    assert first
    assert not first & second
    asyncio.run(close())
    gc.collect()
