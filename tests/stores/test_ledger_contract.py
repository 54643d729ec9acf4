"""Every ledger keeps the one contract."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import psycopg
import pytest

from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import Claimed, Ledger, encode_entry
from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.postgres import schema as postgres_schema
from ekiden.stores.sqlite import SQLiteStore
from ekiden.stores.sqlite import schema as sqlite_schema
from ekiden.testing import LedgerContract
from scripts.postgres import Postgres


class TestMemory(LedgerContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[Ledger, Ledger], None]:
        ledger = MemoryStore()
        yield ledger, ledger


class TestSQLite(LedgerContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder, self.files = tmp_path, 0

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[Ledger, Ledger], None]:
        self.files += 1
        path = self.folder / f"{self.files}.db"
        one, other = SQLiteStore(path), SQLiteStore(path)
        try:
            yield one, other
        finally:
            await one.close()
            await other.close()


class TestPostgres(LedgerContract):
    @pytest.fixture(autouse=True)
    def _url(self, database: str) -> None:
        self.url = database

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[Ledger, Ledger], None]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("TRUNCATE ekiden_rounds, ekiden_round_steps, ekiden_journals")
        one, other = PostgresStore(self.url), PostgresStore(self.url)
        try:
            yield one, other
        finally:
            await one.close()
            await other.close()


# Stores of before

_OLD_ENTRIES = {key: encode_entry(Entry("step", "digest", key)) for key in ("s:a", "s:b")}


async def check_kept(ledger: Ledger) -> None:
    """What was kept before is there; a claim with its history goes on from it."""
    claim = await ledger.claim("round", "yes", now=1.0, lease=10.0, expires=100.0)
    assert isinstance(claim, Claimed)
    assert claim.fence == 2
    assert {key: entry.value for key, entry in claim.entries.items()} == {"s:a": "s:a", "s:b": "s:b"}
    assert await ledger.commit("round", 2, {"s:a": Entry("step", "digest", "again")})
    await ledger.release("round", 2)
    claim = await ledger.claim("round", "yes", now=1.0, lease=10.0, expires=100.0)
    assert isinstance(claim, Claimed)
    assert list(claim.entries) == ["s:b", "s:a"]


async def test_a_file_from_before_entries_had_an_order_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as old:
        for script in sqlite_schema.MIGRATIONS[:2]:
            old.executescript(script)
        old.execute("INSERT INTO rounds VALUES ('round', 'yes', 1, 0.0, 100.0, NULL)")
        for key, entry in _OLD_ENTRIES.items():
            old.execute("INSERT INTO round_steps VALUES ('round', ?, ?)", (key, entry))
        old.execute("PRAGMA user_version = 2")
        old.commit()
    store = SQLiteStore(path)
    await check_kept(store)
    await store.close()


async def test_a_database_from_before_entries_had_an_order_is_brought_up_to_date(postgres: Postgres) -> None:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as old:
        old.execute("CREATE TABLE ekiden_schema (version integer NOT NULL, queue text NOT NULL)")
        old.execute("INSERT INTO ekiden_schema VALUES (1, '3.0.0')")
        old.execute(postgres_schema._MIGRATIONS[0])
        old.execute("INSERT INTO ekiden_rounds VALUES ('round', 'yes', 1, 0.0, 100.0, NULL)")
        for key, entry in _OLD_ENTRIES.items():
            old.execute("INSERT INTO ekiden_round_steps VALUES ('round', %s, %s)", (key, entry))
    store = PostgresStore(url)
    await store.migrate()
    await check_kept(store)
    await store.close()


async def test_many_expired_rounds_go_some_at_a_time_and_wait_for_nobody(database: str) -> None:
    rounds = "INSERT INTO ekiden_rounds SELECT n::text, 'h', 1, 0, n, '' FROM generate_series(1, 2500) AS n"
    steps = "INSERT INTO ekiden_round_steps (round_id, digest, key, entry)"
    store = PostgresStore(database)
    with psycopg.connect(database) as holder, psycopg.connect(database, autocommit=True) as connection:
        connection.execute("TRUNCATE ekiden_rounds, ekiden_round_steps, ekiden_journals")
        connection.execute(rounds)
        connection.execute(f"{steps} SELECT id, '', '', '' FROM ekiden_rounds".encode())
        connection.execute(
            "INSERT INTO ekiden_journals SELECT n::text, '', n FROM generate_series(1, 2500) AS n"
        )
        holder.execute("SELECT 1 FROM ekiden_rounds WHERE id = '2000' FOR UPDATE")
        await store.purge(now=2400.5)
        await store.close()
        assert _ids(connection, "ekiden_journals") == set(range(2401, 2501))
        assert _ids(connection, "ekiden_rounds") == {2000, *range(2401, 2501)}
        kept = connection.execute("SELECT count(*) FROM ekiden_round_steps").fetchone()
        assert kept == (101,)


def _ids(connection: "psycopg.Connection[tuple[str]]", table: str) -> set[int]:
    return {int(row[0]) for row in connection.execute(f"SELECT id FROM {table}".encode())}
