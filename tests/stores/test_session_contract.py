"""Every store of sessions keeps the one contract."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ekiden.sessions.store import Room, SessionRow, SessionStore, StreamPart
from ekiden.testing import SessionStoreContract
from tests.stores.pairs import InADatabase, InAFolder, two_of_a_database, two_of_a_file, two_sealed


class TestSQLite(InAFolder, SessionStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[SessionStore, SessionStore], None]:
        async with two_of_a_file(self.folder) as (one, other):
            assert one.sessions is not None
            assert other.sessions is not None
            yield one.sessions, other.sessions


class TestPostgres(InADatabase, SessionStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[SessionStore, SessionStore], None]:
        async with two_of_a_database(self.url) as (one, other):
            yield one.sessions, other.sessions


class TestSealed(InAFolder, SessionStoreContract):
    """The same, with contents that no reader of the file understands."""

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[SessionStore, SessionStore], None]:
        async with two_sealed(self.folder) as (one, other):
            assert one.sessions is not None
            assert other.sessions is not None
            yield one.sessions, other.sessions

    async def test_the_file_shows_nothing_of_a_session(self) -> None:
        async with self.opened() as (one, _):
            row = SessionRow(key="k", audience="a", principal="p", used=1.0, expires=9.0, data=b"a secret")
            await one.add(row, Room(9, 9, 0.0))
            await one.ask("k", 1, expires=9.0)
            await one.answer("k", 1, b"another secret")
            part = StreamPart(
                number=1, owner="o", leased_until=9.0, events=[(1, b"a third secret")], first=1, waiting=b""
            )
            assert await one.append("k", part)
        assert not any(b"secret" in file.read_bytes() for file in self.folder.glob("store.db*"))
