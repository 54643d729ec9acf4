"""Every store of stories keeps the one contract."""

import re
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from ekiden.server.sealing.keys import find_keys
from ekiden.server.sealing.store import SealedStore
from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.postgres import stories as postgres_stories
from ekiden.stores.sqlite import SQLiteStore
from ekiden.stores.sqlite import stories as sqlite_stories
from ekiden.stories.store import StoryStore, Told
from ekiden.testing import StoryStoreContract
from ekiden.testing.story_contract import _told


class TestMemory(StoryStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[StoryStore, StoryStore], None]:
        store = MemoryStore()
        yield store.stories, store.stories


class TestSQLite(StoryStoreContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[StoryStore, StoryStore], None]:
        one, other = SQLiteStore(self.folder / "store.db"), SQLiteStore(self.folder / "store.db")
        try:
            yield one.stories, other.stories
        finally:
            await one.close()
            await other.close()


class TestPostgres(StoryStoreContract):
    @pytest.fixture(autouse=True)
    def _url(self, database: str) -> None:
        self.url = database

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[StoryStore, StoryStore], None]:
        one, other = PostgresStore(self.url), PostgresStore(self.url)
        try:
            yield one.stories, other.stories
        finally:
            await one.close()
            await other.close()


class TestSealed(StoryStoreContract):
    """The same, with contents that no reader of the file understands."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[StoryStore, StoryStore], None]:
        ring = find_keys([bytes(32)])
        inner = [SQLiteStore(self.folder / "store.db") for _ in range(2)]
        one, other = (SealedStore(store, lambda: ring) for store in inner)
        assert one.stories is not None
        assert other.stories is not None
        try:
            yield one.stories, other.stories
        finally:
            await one.close()
            await other.close()

    async def test_the_file_shows_nothing_of_what_was_said(self) -> None:
        async with self.opened() as (one, _):
            told = _told("a", events=b"a secret")
            told.row.facts = b"another secret"
            await one.write([told])
        assert not any(b"secret" in file.read_bytes() for file in self.folder.glob("store.db*"))


async def test_every_statement_on_sqlite_uses_an_index(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "store.db")
    await store.migrate()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        for name, statement in sqlite_stories.STATEMENTS.items():
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * statement.count("?"))
            steps = [str(row[3]) for row in plan]
            whole = [step for step in steps if step.startswith("SCAN") and "USING" not in step]
            assert not whole, (name, steps)
            assert not [step for step in steps if "TEMP B-TREE" in step], (name, steps)
    await store.close()


async def test_every_statement_on_postgres_uses_an_index(database: str) -> None:
    store = PostgresStore(database)
    for start in range(0, 300, 50):
        told: list[Told] = [_told(f"{start + n}", float(n), events=b"x") for n in range(50)]
        await store.stories.write(told)
    row = postgres_stories._spelled(_told("one").row)
    values: dict[str, Any] = {**row, "after": 9.0, "after_id": "", "limit": 9, "states": ["failed"]}
    values |= {"targets": [b"pay"], "ids": ["1"], "at": 1.0, "before": 9.0, "data": b""}
    for name, statement in postgres_stories.STATEMENTS.items():
        if statement.strip().startswith("INSERT"):
            continue
        used = {key: values[key] for key in re.findall(r"%\((\w+)\)s", statement)}
        async with store._database.writing() as connection:
            found = await (await connection.execute(f"EXPLAIN {statement}".encode(), used)).fetchall()
        plan = "\n".join(line for (line,) in found)
        assert "Seq Scan on ekiden" not in plan, (name, plan)
        assert "Index" in plan, (name, plan)
    await store.close()
