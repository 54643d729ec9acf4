"""Every store of sessions keeps the one contract."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ekiden.server.sealing.keys import find_keys
from ekiden.server.sealing.store import SealedStore
from ekiden.sessions.store import Room, SessionRow, SessionStore, StreamPart
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing import SessionStoreContract


class TestSQLite(SessionStoreContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[SessionStore, SessionStore], None]:
        one, other = SQLiteStore(self.folder / "store.db"), SQLiteStore(self.folder / "store.db")
        assert one.sessions is not None
        assert other.sessions is not None
        try:
            yield one.sessions, other.sessions
        finally:
            await one.close()
            await other.close()


class TestPostgres(SessionStoreContract):
    @pytest.fixture(autouse=True)
    def _url(self, database: str) -> None:
        self.url = database

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[SessionStore, SessionStore], None]:
        one, other = PostgresStore(self.url), PostgresStore(self.url)
        try:
            yield one.sessions, other.sessions
        finally:
            await one.close()
            await other.close()


class TestSealed(SessionStoreContract):
    """The same, with contents that no reader of the file understands."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[SessionStore, SessionStore], None]:
        ring = find_keys([bytes(32)])
        inner = [SQLiteStore(self.folder / "store.db") for _ in range(2)]
        one, other = (SealedStore(store, lambda: ring) for store in inner)
        assert one.sessions is not None
        assert other.sessions is not None
        try:
            yield one.sessions, other.sessions
        finally:
            await one.close()
            await other.close()

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
