"""Every store of questions to people keeps the one contract."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ekiden.people.store import PeopleRow, PeopleStore
from ekiden.server.sealing.keys import find_keys
from ekiden.server.sealing.store import SealedStore
from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing import PeopleStoreContract


class TestMemory(PeopleStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[PeopleStore, PeopleStore], None]:
        store = MemoryStore()
        yield store.people, store.people


class TestSQLite(PeopleStoreContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[PeopleStore, PeopleStore], None]:
        one, other = SQLiteStore(self.folder / "store.db"), SQLiteStore(self.folder / "store.db")
        assert one.people is not None
        assert other.people is not None
        try:
            yield one.people, other.people
        finally:
            await one.close()
            await other.close()


class TestPostgres(PeopleStoreContract):
    @pytest.fixture(autouse=True)
    def _url(self, database: str) -> None:
        self.url = database

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[PeopleStore, PeopleStore], None]:
        one, other = PostgresStore(self.url), PostgresStore(self.url)
        try:
            yield one.people, other.people
        finally:
            await one.close()
            await other.close()


class TestSealed(PeopleStoreContract):
    """The same, with contents that no reader of the file understands."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[PeopleStore, PeopleStore], None]:
        ring = find_keys([bytes(32)])
        inner = [SQLiteStore(self.folder / "store.db") for _ in range(2)]
        one, other = (SealedStore(store, lambda: ring) for store in inner)
        assert one.people is not None
        assert other.people is not None
        try:
            yield one.people, other.people
        finally:
            await one.close()
            await other.close()

    async def test_the_file_shows_nothing_of_a_question(self) -> None:
        async with self.opened() as (one, _):
            row = PeopleRow(id="q", call="c", audience="a", expires=9.0, data=b"a secret")
            await one.add(row)
            row.data = b"another secret"
            assert await one.replace(row)
        assert not any(b"secret" in file.read_bytes() for file in self.folder.glob("store.db*"))
