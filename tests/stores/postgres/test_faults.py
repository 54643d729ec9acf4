"""Postgres with frozen workers, a network that is silent, a failover, and values that it cannot keep."""

import asyncio
import contextlib
import time
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from ekiden import Context, Server, StoreRefused, StoreUnavailable, TaskLimits
from ekiden.rounds.journal import Entry
from ekiden.stores.postgres import PostgresStore, session
from ekiden.stores.postgres import rows as statements
from ekiden.testing import CallFailed
from ekiden.testing.task_contract import new_record
from scripts.postgres import Postgres
from tests.network import behind_a_network
from tests.tasks.driving import PATIENCE, TaskClient, new_server

LIMITS = TaskLimits(lease_seconds=1.5, sweep_seconds=0.2, message_seconds=0.05, poll_seconds=0.01)


def working_server(store: Any, ran: list[str], go: asyncio.Event | None = None, **options: Any) -> Server:
    server = new_server(store, tasks=LIMITS, **options)

    @server.tool(task="required")
    async def tool(name: str, ctx: Context) -> str:
        async def work() -> str:
            ran.append(name)
            if go is not None:
                await go.wait()
            return name

        return await ctx.step(work, key="work")

    return server


async def test_a_row_that_a_frozen_process_has_locked_holds_nobody_else_up(database: str) -> None:
    """Whoever wants that very row hears within seconds that it cannot be had; all others go on."""
    store = PostgresStore(database, wait_seconds=1.0)
    ran: list[str] = []
    server = working_server(store, ran)
    frozen = new_record(
        "frozen", audience="tasks", arguments={"name": "x"}, due=None, state="waiting", ttl=None
    )
    await store.tasks.insert(frozen, {})
    with psycopg.connect(database) as other:
        other.execute("SELECT 1 FROM ekiden_tasks WHERE id = 'frozen' FOR UPDATE")
        async with server.running(), asyncio.timeout(PATIENCE):
            client = TaskClient(server)
            began = time.monotonic()
            cancelling = [asyncio.create_task(client.cancel("frozen")) for _ in range(12)]
            started = [await client.start(arguments={"name": f"{number}"}) for number in range(20)]
            for task_id in started:
                await client.text(task_id)
            assert (await client.get("frozen"))["status"] == "working"
            for ended in await asyncio.gather(*cancelling, return_exceptions=True):
                assert isinstance(ended, CallFailed)
                assert "store" in ended.message
            assert time.monotonic() - began < len(cancelling) * 1.0, "they wait beside each other"
            other.rollback()
            await client.cancel("frozen")
    assert len(ran) == 20
    await store.close()


async def test_a_worker_behind_a_silent_network_is_replaced_and_begins_nothing_more(database: str) -> None:
    ran: list[str] = []
    go = asyncio.Event()
    async with behind_a_network(database) as (network, url):
        far, near = PostgresStore(url, wait_seconds=1.0), PostgresStore(database, wait_seconds=1.0)
        first = new_server(far, tasks=LIMITS)
        second = new_server(near, tasks=LIMITS)
        for number, server in ((1, first), (2, second)):

            @server.tool(task="required")
            async def tool(ctx: Context, number: int = number) -> str:
                async def work(what: str) -> str:
                    ran.append(f"{what}{number}")
                    return f"{what}{number}"

                done = await ctx.step(work, "a", key="a")
                if number == 1:
                    await go.wait()
                return f"{done} {await ctx.step(work, 'b', key='b')}"

        async with first.running(), asyncio.timeout(4 * PATIENCE):
            task_id = await TaskClient(first).start()
            while not await near.tasks.entries(task_id):
                await asyncio.sleep(0.005)
            network.cut()
            async with second.running(), asyncio.timeout(PATIENCE):  # TCP itself would wait for minutes.
                assert await TaskClient(second).text(task_id) == "a1 b2"
                go.set()
                with pytest.raises(CallFailed):
                    await TaskClient(first).get(task_id)
                network.heal()
                while True:
                    with contextlib.suppress(CallFailed):
                        assert (await TaskClient(first).get(task_id))["status"] == "completed"
                        break
                    await asyncio.sleep(0.05)
                again = await TaskClient(first).start()
                assert await TaskClient(second).text(again) in ("a1 b1", "a2 b2")
        assert ran[:2] == ["a1", "b2"]
        await far.close()
        await near.close()


async def test_a_network_that_falls_silent_right_after_a_connection_is_made_holds_nobody_up(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is to be set up then. What cannot be cancelled is cut."""
    usual = psycopg.AsyncConnection.connect
    async with behind_a_network(database) as (network, url):

        async def connect(*arguments: Any, **keywords: Any) -> Any:
            connection = await usual(*arguments, **keywords)
            network.cut()
            return connection

        monkeypatch.setattr(psycopg.AsyncConnection, "connect", connect)
        was_cut = False
        while not was_cut:  # A machine that is busy may take longer than it may take to connect.
            connecting = asyncio.create_task(session.connect(url, 0.5))
            done, _ = await asyncio.wait({connecting}, timeout=PATIENCE)
            was_cut = network.is_cut
            network.heal()
            assert done, "it waits for the other side"
        assert isinstance(connecting.exception(), psycopg.Error)


async def test_a_database_that_is_read_only_for_a_while_costs_no_task_its_worker(postgres: Postgres) -> None:
    """As in a failover. What runs meanwhile goes on, and what comes later is begun once."""
    database = postgres.new_database()
    store = PostgresStore(database, wait_seconds=1.0)
    await store.migrate()
    ran: list[str] = []
    go = asyncio.Event()
    first, second = working_server(store, ran, go), working_server(store, ran, go)
    name = urlsplit(database).path[1:]
    async with first.running(), second.running(), asyncio.timeout(4 * PATIENCE):
        client = TaskClient(first)
        held = await client.start(arguments={"name": "held"})
        while ran != ["held"]:
            await asyncio.sleep(0.005)
        postgres.set_read_only(name, is_on=True)
        await asyncio.sleep(3 * LIMITS.lease_seconds)
        with pytest.raises(CallFailed):
            await client.start(arguments={"name": "refused"})
        postgres.set_read_only(name, is_on=False)
        await asyncio.sleep(2 * LIMITS.lease_seconds)
        go.set()
        assert await client.text(held) == "held"
        later = [await client.start(arguments={"name": f"later {n}"}) for n in range(10)]
        for number, task_id in enumerate(later):
            assert await client.text(task_id) == f"later {number}"
    assert sorted(ran) == sorted(["held", *(f"later {number}" for number in range(10))])
    await store.close()


async def test_a_value_that_the_database_cannot_keep_fails_its_caller_only(database: str) -> None:
    store = PostgresStore(database)
    good = [new_record(f"good {number}") for number in range(20)]
    bad = new_record("bad \0 bad")
    kept = await asyncio.gather(
        *(store.tasks.insert(record, {}) for record in (*good[:10], bad, *good[10:])), return_exceptions=True
    )
    refused = [each for each in kept if isinstance(each, BaseException)]
    assert [type(each) for each in refused] == [StoreRefused]
    assert len(await store.tasks.listing()) == 20
    await store.close()


async def test_a_statement_that_takes_too_long_is_ended_and_said_to_be_away(database: str) -> None:
    store, patient = PostgresStore(database, wait_seconds=0.5), PostgresStore(database)
    await patient.tasks.insert(new_record(), {})
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE ekiden_tasks IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(PATIENCE):
                await store.tasks.load("task")
    assert await patient.tasks.load("task") == new_record()
    await store.close()
    await patient.close()


async def test_a_transaction_that_its_process_forgets_is_ended_by_the_database(database: str) -> None:
    store, patient = PostgresStore(database, wait_seconds=0.5), PostgresStore(database)
    await patient.tasks.insert(new_record(), {})
    with contextlib.suppress(psycopg.Error, StoreUnavailable):
        async with store._database.transaction() as connection:
            await connection.execute("SELECT 1 FROM ekiden_tasks WHERE id = 'task' FOR UPDATE")
            await asyncio.sleep(1.0)
            await connection.execute("SELECT 1")
            raise AssertionError("the transaction was still there")
    held = await patient.tasks.claim("task", now=1000.0, lease=10.0)
    assert held is not None
    await store.close()
    await patient.close()


PLANS = {
    name: query
    for name, query in vars(statements).items()
    if name.isupper() and not name.startswith("_") and isinstance(query, str)
} | {f"NEWEST {which}": query for which, query in statements.NEWEST.items()}


@pytest.mark.parametrize("name", sorted(PLANS))
async def test_every_statement_has_its_index(database: str, name: str) -> None:
    """With the settings of the store's own connections, and a table that is larger than a page."""
    store = PostgresStore(database)
    await asyncio.gather(
        *(store.tasks.insert(new_record(f"task {n}"), {"s:1": Entry("step", "", 1)}) for n in range(300))
    )
    columns: dict[str, Any] = statements.row_columns([statements.Write(new_record("task 1"), {}, None)])
    values: Any = {**columns, "news": [], "until": 1.0, "tools": ["tool"], "now": 1.0, "limit": 9}
    values |= {"start": b"", "most": 9, "before": 1.0, "abandoned": 1.0}
    if name.startswith("NEWEST"):
        values |= {"audience": "server", "principal": b"", "state": None, "created": 1.0, "id": ""}
    if name in ("DUE", "OTHERS_DUE", "NEXT_DUE", "FORGET"):
        values["audience"] = "server"
    if name in ("BY_ID", "SMALL_BY_ID", "BY_FLOW", "ENTRIES"):
        values = (["task 1"],)
    if name == "SEARCH":
        values |= {"tools": ["tool"], "states": ["queued"], "created": 1.0, "id": "", "limit": 9}
    if name == "OVERDUE":
        values = (1.0, 9)
    if name == "USAGE":
        values = ("server", b"")
    async with store._database.writing() as connection:
        found = await (await connection.execute(f"EXPLAIN {PLANS[name]}".encode(), values)).fetchall()
    plan = "\n".join(line for (line,) in found)
    assert "Seq Scan on ekiden" not in plan, plan
    assert "Index" in plan, plan
    await store.close()
