"""Every store of questions to people keeps the one contract."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ekiden.people.store import PeopleRow, PeopleStore
from ekiden.stores.memory import MemoryStore
from ekiden.testing import PeopleStoreContract
from tests.stores.pairs import InADatabase, InAFolder, two_of_a_database, two_of_a_file, two_sealed


class TestMemory(PeopleStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[PeopleStore, PeopleStore], None]:
        store = MemoryStore()
        yield store.people, store.people


class TestSQLite(InAFolder, PeopleStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[PeopleStore, PeopleStore], None]:
        async with two_of_a_file(self.folder) as (one, other):
            assert one.people is not None
            assert other.people is not None
            yield one.people, other.people


class TestPostgres(InADatabase, PeopleStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[PeopleStore, PeopleStore], None]:
        async with two_of_a_database(self.url) as (one, other):
            yield one.people, other.people


class TestSealed(InAFolder, PeopleStoreContract):
    """The same, with contents that no reader of the file understands."""

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[PeopleStore, PeopleStore], None]:
        async with two_sealed(self.folder) as (one, other):
            assert one.people is not None
            assert other.people is not None
            yield one.people, other.people

    async def test_the_file_shows_nothing_of_a_question(self) -> None:
        async with self.opened() as (one, _):
            row = PeopleRow(id="q", call="c", audience="a", expires=9.0, data=b"a secret")
            await one.add(row)
            row.data = b"another secret"
            assert await one.replace(row)
        assert not any(b"secret" in file.read_bytes() for file in self.folder.glob("store.db*"))
