"""Stores to run the same tests on. There is one Postgres for all tests of a process."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from scripts.postgres import Postgres, running_postgres

_TABLES = """
actions call_events calls events journals people questions
round_steps rounds sessions streams task_entries tasks
"""
# A few rows are deleted sooner than TRUNCATE makes new files for all these tables and their indexes.
_EMPTY = ";".join(f"DELETE FROM ekiden_{table}" for table in _TABLES.split()).encode()


@pytest.fixture(scope="session")
def postgres() -> Generator[Postgres, None, None]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def _migrated(postgres: Postgres) -> str:
    """A database with tables."""
    url = postgres.new_database()

    async def migrate() -> None:
        store = PostgresStore(url)
        await store.migrate()
        await store.close()

    with ThreadPoolExecutor(1) as thread:  # A fixture may be wanted while a loop runs.
        thread.submit(lambda: asyncio.run(migrate())).result()
    return url


@pytest.fixture
def database(_migrated: str) -> str:
    """The URL of a database whose tables are empty."""
    # Whoever holds a table is a test that has ended: it is not waited for without end.
    bounded = "-c lock_timeout=30s -c statement_timeout=60s"
    with psycopg.connect(_migrated, autocommit=True, connect_timeout=30, options=bounded) as connection:
        connection.execute(_EMPTY)
    return _migrated


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Any, None]:
    made: Any
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "sqlite":
        made = SQLiteStore(tmp_path / "tasks.db")
    else:
        made = PostgresStore(request.getfixturevalue("database"))
    yield made
    left = _left_behind()
    await made.close()
    assert left == [], "a server or a client of this test was not closed"


def _left_behind() -> list[str]:
    """Tasks that could use a store after it was closed: those of a server that nobody stopped."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    codes = [getattr(task.get_coro(), "cr_code", None) for task in tasks if not task.done()]
    return [code.co_qualname for code in codes if code is not None and "ekiden/tasks/" in code.co_filename]
