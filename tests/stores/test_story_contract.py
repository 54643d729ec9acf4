"""Every store of stories keeps the one contract."""

import re
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.postgres import stories as postgres_stories
from ekiden.stores.sqlite import SQLiteStore
from ekiden.stores.sqlite import stories as sqlite_stories
from ekiden.stories.store import CallQuery, StoryStore, Told
from ekiden.testing import StoryStoreContract
from ekiden.testing.story_contract import _told
from tests.stores.pairs import InADatabase, InAFolder, two_of_a_database, two_of_a_file, two_sealed


class TestMemory(StoryStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[StoryStore, StoryStore], None]:
        store = MemoryStore()
        yield store.stories, store.stories


class TestSQLite(InAFolder, StoryStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[StoryStore, StoryStore], None]:
        async with two_of_a_file(self.folder) as (one, other):
            yield one.stories, other.stories


class TestSQLiteInMemory(StoryStoreContract):
    """One store, which has no bus: nobody else could see anything of it."""

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[StoryStore, StoryStore], None]:
        store = SQLiteStore(":memory:")
        assert store.stories is not None
        yield store.stories, store.stories
        await store.close()


class TestPostgres(InADatabase, StoryStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[StoryStore, StoryStore], None]:
        async with two_of_a_database(self.url) as (one, other):
            yield one.stories, other.stories


class TestSealed(InAFolder, StoryStoreContract):
    """The same, with contents that no reader of the file understands."""

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[StoryStore, StoryStore], None]:
        async with two_sealed(self.folder) as (one, other):
            assert one.stories is not None
            assert other.stories is not None
            yield one.stories, other.stories

    async def test_the_file_shows_nothing_of_what_was_said(self) -> None:
        async with self.opened() as (one, _):
            told = _told("a", events=b"a secret")
            told.row.facts = b"another secret"
            await one.write([told])
        assert not any(b"secret" in file.read_bytes() for file in self.folder.glob("store.db*"))


async def test_all_calls_are_forgotten_if_all_are_old(store: Any) -> None:
    await store.stories.write([_told(f"{n}", float(n), events=b"x") for n in range(5)])
    assert await store.stories.trim(before=100.0, most_calls=100, most_bytes=100) == 5
    assert await store.stories.listing(CallQuery()) == []
    assert await store.stories.trim(before=100.0, most_calls=100, most_bytes=100) == 0


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_so_many_targets_are_listed(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for stories in (sqlite_stories, postgres_stories):
        monkeypatch.setattr(stories, "_MOST_TARGETS", 2)
    await store.stories.write([_told(target, target=target) for target in ("a", "b", "c")])
    assert await store.stories.targets() == ["a", "b"]


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
