"""What has expired is removed some at a time: others write in between, in this process and in others."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ekiden.stores.sqlite import SQLiteStore
from tests.serving import soon

ROWS = 2500
"""More than one portion has."""
NOW = 2000.0

Purge = Callable[[SQLiteStore], Awaitable[None]]


async def rounds(store: SQLiteStore) -> None:
    await store.purge(now=NOW)


async def sessions(store: SQLiteStore) -> None:
    assert store.sessions is not None
    await store.sessions.purge(now=NOW)


async def people(store: SQLiteStore) -> None:
    await store.people.purge(now=NOW)


def fill(path: Path, table: str, row: Callable[[int], tuple[Any, ...]]) -> None:
    """Rows of which the number is the time when they expire."""
    rows: Iterable[tuple[Any, ...]] = [row(n) for n in range(ROWS)]
    with closing(sqlite3.connect(path)) as file, file:
        file.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(row(0)))})", rows)


TABLES: list[tuple[Purge, str, str, Callable[[int], tuple[Any, ...]]]] = [
    (rounds, "rounds", "expires >= 2000", lambda n: (str(n), "", 1, 0.0, float(n), b"")),
    (rounds, "journals", "expires >= 2000", lambda n: (str(n), b"", float(n))),
    (sessions, "sessions", "expires > 2000", lambda n: (str(n), "a", "", 0.0, float(n), b"")),
    (sessions, "streams", "expires > 2000", lambda n: (str(n), 1, "o", 0.0, b"", float(n))),
    (sessions, "questions", "expires > 2000", lambda n: (str(n), 1, float(n), None)),
    (people, "people", "expires > 2000", lambda n: (str(n), "c", "a", None, float(n), 1, b"")),
]


@pytest.mark.parametrize(("purge", "table", "left", "row"), TABLES, ids=[each[1] for each in TABLES])
async def test_others_write_while_much_is_removed(
    tmp_path: Path, purge: Purge, table: str, left: str, row: Callable[[int], tuple[Any, ...]]
) -> None:
    path = tmp_path / "store.db"
    store = SQLiteStore(path)
    await store.migrate()
    fill(path, table, row)
    purging = asyncio.ensure_future(purge(store))
    await asyncio.sleep(0)  # It has begun.
    await soon(store.put_journal("other", b"", expires=NOW + ROWS))
    assert not purging.done()
    await soon(purging)
    await store.close()
    with closing(sqlite3.connect(path)) as file:
        kept = {(n,) for (n,) in file.execute(f"SELECT expires FROM {table} WHERE expires < {ROWS}")}
        assert kept == set(file.execute(f"SELECT expires FROM {table} WHERE {left} AND expires < {ROWS}"))
        assert len(kept) in (ROWS - NOW, ROWS - NOW - 1)


async def test_with_a_round_go_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SQLiteStore(path)
    await store.migrate()
    fill(path, "rounds", lambda n: (str(n), "", 1, 0.0, float(n), b""))
    fill(path, "round_steps", lambda n: (n, str(n), b"key", b""))
    await soon(rounds(store))
    await store.close()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT min(number), count(*) FROM round_steps").fetchone() == (2000, 500)
