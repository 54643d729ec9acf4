"""The tables of Postgres belong to a version, and no other version writes to them."""

import psycopg
import pytest

from ekiden import UsageError
from ekiden.stores.postgres import PostgresStore
from scripts.postgres import Postgres


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
