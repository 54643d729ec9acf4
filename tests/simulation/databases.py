"""The database of the cases that run on Postgres: one for each process, emptied between cases."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from ekiden.stores.postgres import PostgresStore

__all__ = ["Database", "begin", "current", "in_use"]

_TABLES = ("ekiden_rounds", "ekiden_round_steps", "ekiden_journals", "ekiden_tasks", "ekiden_task_entries")
_PATIENCE = 20.0
_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


class Database:
    """Looked at and emptied from outside, while nothing is simulated."""

    def __init__(self, url: str) -> None:
        self.url = url
        asyncio.run(PostgresStore(url).migrate())
        self._connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)

    def empty(self) -> None:
        """Cut whoever is still connected, and delete every row: nothing of one case reaches the next."""
        deadline = time.monotonic() + _PATIENCE
        while self._rows(f"SELECT pg_terminate_backend(pid) {_OTHERS}"):
            assert time.monotonic() < deadline, "somebody stays connected to the simulated database"
            time.sleep(0.001)
        for table in _TABLES:
            self._connection.execute(f"DELETE FROM {table}".encode())

    def leftovers(self, now: float) -> list[str]:
        """Claims that someone holds, and rows."""
        held = f"SELECT id FROM ekiden_rounds WHERE outcome IS NULL AND leased_until > {now}"
        found = [f"claim {row[0]}" for row in self._rows(held)]
        for table in _TABLES:
            found += [f"row of {table} {row[0]}" for row in self._rows(f"SELECT * FROM {table}")]
        return found

    def close(self) -> None:
        self._connection.close()

    def _rows(self, query: str) -> list[Any]:
        return self._connection.execute(query.encode()).fetchall()


_current: Database | None = None


def current() -> Database:
    """The database of this process."""
    assert _current is not None, "no database is in use"
    return _current


def begin(server: str) -> None:
    """Use a new database of this server, for as long as the process lives."""
    global _current
    name = f"simulated_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    _current = Database(f"{server}/{name}")


@contextmanager
def in_use(server: str) -> Iterator[None]:
    """Use a new database of this server."""
    global _current
    begin(server)
    try:
        yield
    finally:
        current().close()
        _current = None
