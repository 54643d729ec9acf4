"""Tables of Postgres belong to a version: old ones are brought up to date, newer ones are left alone."""

from typing import Any

import msgspec
import psycopg
import pytest

from ekiden import UsageError
from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Busy, Claimed, Unfinished, encode_entry
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.postgres.schema import _MIGRATIONS
from ekiden.tasks.record import encode_record
from ekiden.tasks.store import TaskQuery
from ekiden.testing.task_contract import new_record
from scripts.postgres import Postgres

STEP = Entry("step", "digest", "paid")


async def test_tables_of_a_newer_version_are_left_alone(postgres: Postgres) -> None:
    url = postgres.new_database()
    store = PostgresStore(url)
    await store.migrate()
    await store.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE ekiden_schema SET version = version + 1")
    later = PostgresStore(url)
    with pytest.raises(UsageError, match="written by a newer ekiden"):
        await later.migrate()
    with pytest.raises(UsageError, match="written by a newer ekiden"):
        await later.tasks.load("t1")
    await later.close()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM ekiden_tasks").fetchone() == (0,)


@pytest.fixture
def first_schema(postgres: Postgres) -> str:
    """A database of the first version, with a round, and two tasks that were claimed twice."""
    url = postgres.new_database()
    entry = msgspec.msgpack.encode(STEP)
    with psycopg.connect(url) as connection:
        connection.execute(_MIGRATIONS[0])
        connection.execute("CREATE TABLE ekiden_schema (version integer NOT NULL)")
        connection.execute("INSERT INTO ekiden_schema VALUES (1)")
        connection.execute("INSERT INTO ekiden_rounds VALUES ('round', 'history', 1, 500.0, 5000.0, NULL)")
        for key in ("s:2", "s:1"):
            connection.execute(
                "INSERT INTO ekiden_round_steps VALUES ('round', %s, %s)", (key, encode_entry(STEP))
            )
        for task_id, principal in (("hers", "alice"), ("his", "b\0b")):
            connection.execute(
                "INSERT INTO ekiden_tasks VALUES (%s, %s, 'server', 'running', 2, 2, 1010, 1060, 1000, %s)",
                (task_id, f"flow of {task_id}", old_record(task_id, principal)),
            )
            connection.execute(
                "INSERT INTO ekiden_task_entries (task_id, key, entry) VALUES (%s, 's:pay', %s)",
                (task_id, entry),
            )
    return url


def old_record(task_id: str, principal: str) -> bytes:
    """A record as the first version kept it."""
    record = new_record(task_id, principal=principal, state="running", fence=2, due=1010.0)
    fields: dict[str, Any] = msgspec.msgpack.decode(encode_record(record))
    del fields["losses"], fields["version"]
    return msgspec.msgpack.encode({**fields, "attempts": 2})


async def test_what_a_database_of_the_first_version_holds_goes_on(first_schema: str) -> None:
    store = PostgresStore(first_schema)
    with pytest.raises(UsageError, match="missing or old: run `ekiden store migrate"):
        await store.tasks.load("hers")
    await store.migrate()

    assert await store.look("round", "history", now=1000.0) == Unfinished()
    dead = Busy(1, 500.0)
    claim = await store.claim("round", "history", now=1000.0, lease=10.0, expires=5000.0, instead_of=dead)
    assert claim == Claimed(2, {"s:1": STEP, "s:2": STEP})

    found = await store.tasks.due("server", ["tool"], now=1010.0, limit=9)
    assert sorted((each.id, each.principal, each.losses) for each in found) == [
        ("hers", "alice", 2),
        ("his", "b\0b", 2),
    ]
    assert [task.id for task in await store.tasks.search(TaskQuery(principal="b\0b"))] == ["his"]
    assert await store.tasks.tools() == ["tool"]
    (held,) = await store.tasks.claim_all(["hers"], now=1010.0, lease=10.0)
    assert (held.fence, held.record.losses, held.entries) == (3, 3, {"s:pay": STEP})
    await store.close()
