"""Rows that somebody else writes, or removes, in the same moment: the others try again, and lose nothing."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import psycopg
import pytest

from ekiden import StoreUnavailable
from ekiden.people.store import PeopleRow
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Claimed
from ekiden.stores.postgres import PostgresStore, people, rows
from ekiden.stores.postgres import store as rounds
from ekiden.tasks.record import TaskRecord
from ekiden.testing.task_contract import new_record
from tests.tasks.driving import PATIENCE

STEP = {"s:1": Entry("step", "", 1)}


@pytest.fixture
async def store(database: str) -> AsyncGenerator[PostgresStore, None]:
    opened = PostgresStore(database, wait_seconds=PATIENCE)
    yield opened
    await opened.close()


@pytest.fixture
def tries(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[str]:
    """What is to be tried again."""
    waits, patience = asyncio.Queue[str](), store.tasks._patience

    def noted(what: str) -> Any:
        bounded = patience(what)
        wait = bounded.wait

        async def waiting() -> None:
            waits.put_nowait(what)
            await wait()

        bounded.wait = waiting  # type: ignore[method-assign]  # to know when it waits
        return bounded

    monkeypatch.setattr(store.tasks, "_patience", noted)
    return waits


async def held(store: PostgresStore, *task_ids: str) -> None:
    for task_id in task_ids:
        await store.tasks.insert(new_record(task_id), {})
    assert len(await store.tasks.claim_all(task_ids, now=1000.0, lease=10.0)) == len(task_ids)


async def test_a_step_is_added_when_the_row_is_free(
    store: PostgresStore, database: str, tries: asyncio.Queue[str]
) -> None:
    await held(store, "task")
    with psycopg.connect(database) as other:
        other.execute("SELECT 1 FROM ekiden_tasks WHERE id = 'task' FOR UPDATE")
        adding = asyncio.create_task(store.tasks.append("task", 1, STEP))
        async with asyncio.timeout(PATIENCE):
            await tries.get()
        assert not adding.done()
        other.rollback()
    async with asyncio.timeout(PATIENCE):
        assert await adding == "running"
    assert await store.tasks.entries("task") == STEP


async def test_a_lease_whose_row_is_being_written_is_extended_after_that(
    store: PostgresStore, database: str, tries: asyncio.Queue[str]
) -> None:
    """The others are extended at once, and one that is lost is not waited for."""
    await held(store, "mine", "locked", "lost")
    assert len(await store.tasks.claim_all(["lost"], now=1020.0, lease=10.0)) == 1
    with psycopg.connect(database) as other:
        other.execute("SELECT 1 FROM ekiden_tasks WHERE id IN ('locked', 'lost') FOR UPDATE")
        wanted = {"mine": 1, "locked": 1, "lost": 1}
        extending = asyncio.create_task(store.tasks.extend(wanted, until=2000.0))
        async with asyncio.timeout(PATIENCE):
            await tries.get()
        assert not extending.done()
        assert [await due(store, each) for each in ("mine", "locked")] == [2000.0, 1010.0]
        other.rollback()
    async with asyncio.timeout(PATIENCE):
        assert await extending == {"mine", "locked"}
    assert [await due(store, each) for each in wanted] == [2000.0, 2000.0, 1030.0]


async def due(store: PostgresStore, task_id: str) -> float | None:
    record = await store.tasks.load(task_id)
    assert record is not None
    return record.due


async def test_a_task_is_kept_although_that_of_its_flow_was_removed_in_this_moment(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = new_record("old", flow="flow", state="failed", due=None)
    new = new_record("new", flow="flow")
    await store.tasks.insert(old, {})
    write = store.tasks._write

    async def removed_before_it_is_read(query: Any, values: Any) -> list[Any]:
        if query is rows.BY_FLOW:
            assert await store.tasks.forget(before=2000.0) == 1
        return await write(query, values)

    monkeypatch.setattr(store.tasks, "_write", removed_before_it_is_read)
    assert await store.tasks.insert(new, STEP) == new
    assert await store.tasks.load("new") == new
    assert await store.tasks.entries("new") == STEP


async def test_a_question_is_kept_although_the_one_before_was_removed_in_this_moment(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(data: bytes) -> PeopleRow:
        return PeopleRow(id="id", call="call", audience="a server", due=None, expires=5000.0, data=data)

    await store.people.add(row(b"old"))
    load = people._load

    async def removed_before_it_is_read(*arguments: Any) -> Any:
        await store.people.remove("id", 1)
        return await load(*arguments)

    monkeypatch.setattr(people, "_load", removed_before_it_is_read)
    kept = await store.people.add(row(b"new"))
    monkeypatch.undo()
    assert kept.data == b"new"
    assert await store.people.load("id") == kept


async def test_a_round_is_claimed_although_the_one_before_was_forgotten_in_this_moment(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await store.claim("round", "old", now=1.0, lease=10.0, expires=100.0) == Claimed(1, {})
    assert await store.finish("round", 1, b"done")
    look = rounds._row

    async def forgotten_before_it_is_read(*arguments: Any) -> Any:
        await store.purge(now=101.0)
        return await look(*arguments)

    monkeypatch.setattr(rounds, "_row", forgotten_before_it_is_read)
    assert await store.claim("round", "new", now=101.0, lease=10.0, expires=200.0) == Claimed(1, {})


async def test_a_row_that_others_write_all_the_time_is_given_up(database: str) -> None:
    impatient = PostgresStore(database, wait_seconds=0.5)
    await held(impatient, "task")
    with psycopg.connect(database) as other:
        other.execute("SELECT 1 FROM ekiden_tasks WHERE id = 'task' FOR UPDATE")
        for work in attempts(impatient):
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(StoreUnavailable, match="being written by others all the time"):
                    await work
    await impatient.close()


def attempts(store: PostgresStore) -> Sequence[Any]:
    def said(record: TaskRecord) -> None:
        record.message = "said"

    return [
        store.tasks.append("task", 1, STEP),
        store.tasks.change("task", said),
        store.tasks.extend({"task": 1}, until=2000.0),
    ]
