"""Stores that are full, locked, away or old: a clear error, and nothing lost that was acknowledged."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ekiden import Context, Server, StoreUnavailable, UsageError
from ekiden.stores import open_store
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.postgres.database import PostgresDatabase
from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing import CallFailed
from ekiden.testing.task_contract import new_record
from scripts.postgres import Postgres, running_postgres
from tests.tasks.driving import TaskClient, accept, new_server


@pytest.mark.parametrize(
    "trouble", ["PRAGMA max_page_count = 1", "PRAGMA query_only = ON"], ids=["full disk", "read-only"]
)
async def test_a_file_that_cannot_be_written_is_a_clear_error_and_loses_nothing(
    tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    server = new_server(store)
    ran: list[str] = []

    @server.tool(task="required")
    async def tool(text: str, ctx: Context) -> str:
        def work() -> str:
            ran.append("work")
            return text

        await ctx.step(work)
        return str((await ctx.elicit("sure?", bool, key="sure")).data)

    async with server.running():
        client = TaskClient(server)
        task_id = await client.start("tool", {"text": "small"})
        await client.asked(task_id)
        writer = store._file._open.writer
        assert writer is not None
        usual = writer.execute("PRAGMA max_page_count").fetchone()[0]
        writer.execute(trouble)
        for _ in range(3):
            with pytest.raises(CallFailed) as caught:
                await client.ask("tool", {"text": "large" * 20_000})
            assert caught.value.code == -32603
            assert "store" in caught.value.message
        assert (await client.get(task_id))["status"] == "input_required"
        writer.execute(f"PRAGMA max_page_count = {usual}")
        writer.execute("PRAGMA query_only = OFF")
        await client.update(task_id, {"sure.1": accept(True)})
        assert await client.text(task_id) == "True"
    assert "cannot be written" in caplog.text
    await store.close()


async def test_that_nothing_can_be_written_is_found_out_without_a_lease_to_extend(
    tmp_path: Path, database: str
) -> None:
    """Whoever finds a silent worker asks that first: that one cannot renew either."""
    file, usual = SQLiteStore(tmp_path / "tasks.db", busy_seconds=0.05), PostgresStore(database)
    await file.migrate()
    assert await file.tasks.extend({}, until=1.0) == await usual.tasks.extend({}, until=1.0) == set()
    read_only = PostgresStore(f"{database}?options=-c%20default_transaction_read_only%3Don")
    assert await read_only.tasks.load("task") is None
    with contextlib.closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await file.tasks.load("task") is None
        for store in (file, read_only):
            with pytest.raises(StoreUnavailable):
                await store.tasks.extend({}, until=1.0)
    for opened in (file, usual, read_only):
        await opened.close()


async def test_a_step_waits_for_a_store_that_is_away_for_a_moment(store: Any) -> None:
    """The step has been run, so its value is kept trying to be committed; it is not run again."""
    server = new_server(store)
    ran: list[str] = []
    append, failures = store.tasks.append, 3

    async def flaky(*arguments: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailable("away")
        return await append(*arguments)

    store.tasks.append = flaky

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        def work() -> str:
            ran.append("work")
            return "worked"

        return await ctx.step(work)

    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start()) == "worked"
    assert ran == ["work"]


async def test_a_file_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = sqlite3.connect(path)
    old.executescript(
        """
        CREATE TABLE rounds (id TEXT PRIMARY KEY, answers TEXT NOT NULL, fence INTEGER NOT NULL,
            leased_until REAL NOT NULL, expires REAL NOT NULL, outcome BLOB) WITHOUT ROWID;
        CREATE TABLE round_steps (round_id TEXT NOT NULL, key TEXT NOT NULL, entry BLOB NOT NULL,
            PRIMARY KEY (round_id, key)) WITHOUT ROWID;
        CREATE TABLE journals (id TEXT PRIMARY KEY, data BLOB NOT NULL, expires REAL NOT NULL) WITHOUT ROWID;
        INSERT INTO journals VALUES ('kept', x'01', 5.0);
        PRAGMA user_version = 1;
        """
    )
    old.close()
    stores = [SQLiteStore(path) for _ in range(3)]
    await asyncio.gather(*(store.migrate() for store in stores))
    assert await stores[0].get_journal("kept") == b"\x01"
    await stores[1].tasks.insert(new_record(), {})
    assert await stores[2].tasks.load("task") == new_record()
    for store in stores:
        await store.close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(UsageError, match="newer"):
        await SQLiteStore(path).migrate()


# Postgres


async def test_a_database_without_tables_says_what_to_do(postgres: Postgres) -> None:
    store = PostgresStore(postgres.new_database())
    with pytest.raises(UsageError, match="ekiden store migrate"):
        await store.tasks.load("task")
    await asyncio.gather(store.migrate(), store.migrate())
    await store.migrate()
    assert await store.tasks.load("task") is None
    await store.close()


async def test_a_server_does_not_start_on_a_database_without_tables(postgres: Postgres) -> None:
    store = PostgresStore(postgres.new_database())
    left: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[None, None]:
        yield
        left.append("left")

    server = new_server(store, lifespan=lifespan)

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return "done"

    with pytest.raises(UsageError, match="ekiden store migrate"):
        async with server.running():
            pass
    assert left == ["left"]
    await store.migrate()
    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start("tool")) == "done"
    await store.close()


async def test_a_server_without_tasks_does_not_start_on_a_database_without_tables(postgres: Postgres) -> None:
    store = PostgresStore(postgres.new_database())
    server = new_server(store)

    @server.tool(once=True)
    async def pay(ctx: Context) -> str:
        return "paid"

    with pytest.raises(UsageError, match="ekiden store migrate"):
        async with server.running():
            pass
    await store.migrate()
    async with server.running():
        pass
    await store.close()


async def test_a_server_starts_although_its_database_is_away(caplog: pytest.LogCaptureFixture) -> None:
    store = PostgresStore("postgresql://ekiden@127.0.0.1:1/nothing", wait_seconds=0.2)
    server = new_server(store)

    @server.tool(task="optional")
    async def tool(ctx: Context) -> str:
        return "done"

    async with server.running():
        with pytest.raises(CallFailed) as caught:
            await TaskClient(server).ask("tool")
        assert caught.value.code == -32603
    assert "wait for their store" in caplog.text
    await store.close()


async def test_a_database_that_is_not_there_is_unavailable() -> None:
    store = PostgresStore("postgresql://ekiden@127.0.0.1:1/nothing", wait_seconds=0.2)
    with pytest.raises(StoreUnavailable):
        await store.tasks.load("task")
    with pytest.raises(UsageError):
        await store.migrate()
    await store.close()


def test_a_url_opens_the_store_that_it_names() -> None:
    assert isinstance(open_store("postgresql://ekiden@127.0.0.1:1/nothing"), PostgresStore)
    assert isinstance(open_store("sqlite:///x.db"), SQLiteStore)
    with pytest.raises(UsageError, match=r"must be.*'redis://x'"):
        open_store("redis://x")
    with pytest.raises(UsageError, match=r"must be.*'postgresql.psycopg://...@db/shop'") as raised:
        open_store("postgresql+psycopg://shop:pass@word@db/shop")
    assert "pass" not in str(raised.value)


@pytest.mark.parametrize("late", range(6))
async def test_whoever_is_cancelled_with_a_connection_leaves_it_to_the_next(database: str, late: int) -> None:
    """The first has the only connection and ends, `late` passes after the second began to wait for it."""
    only = PostgresDatabase(database, most_connections=1, wait_seconds=2.0)

    async def use(until: asyncio.Event) -> None:
        async with only.reading():
            await until.wait()

    async with asyncio.timeout(60):
        for later in range(10):
            enough = asyncio.Event()
            first = asyncio.create_task(use(enough))
            await asyncio.sleep(0.01)
            second = asyncio.create_task(use(enough))
            await passes(late)
            enough.set()
            await passes(later)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await second
    await only.close()


async def passes(of_the_loop: int) -> None:
    for _ in range(of_the_loop):
        await asyncio.sleep(0)


async def test_postgres_is_stopped_and_started_in_the_middle() -> None:
    ran: list[str] = []
    go = asyncio.Event()
    with running_postgres() as postgres:
        store = PostgresStore(postgres.new_database(), wait_seconds=0.5)
        await store.migrate()
        server = new_server(store)

        @server.tool(task="required")
        async def tool(ctx: Context) -> str:
            async def work(what: str) -> str:
                ran.append(what)
                if what == "held":
                    await go.wait()
                return what

            done = [await ctx.step(work, what) for what in ("quick", "held", "last")]
            return f"{' '.join(done)} {(await ctx.elicit('sure?', bool, key='sure')).data}"

        async with server.running():
            client = TaskClient(server)
            task_id = await client.start()
            async with asyncio.timeout(20):
                while ran != ["quick", "held"]:
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(postgres.stop)
            go.set()
            with pytest.raises(CallFailed) as caught:
                await client.get(task_id)
            assert caught.value.code == -32603
            await asyncio.sleep(0.3)
            await asyncio.to_thread(postgres.start)
            async with asyncio.timeout(30):
                while True:
                    try:
                        assert set(await client.asked(task_id)) == {"sure.1"}
                        break
                    except CallFailed:
                        await asyncio.sleep(0.05)
            await client.update(task_id, {"sure.1": accept(True)})
            assert await client.text(task_id) == "quick held last True"
        assert ran == ["quick", "held", "last"]
        await store.close()
