"""Two stores that share what they keep, as two processes have them."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from ekiden.server.sealing.keys import find_keys
from ekiden.server.sealing.store import SealedStore
from ekiden.stores import Store
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore

S = TypeVar("S", bound=Store)


class InAFolder:
    """For contracts of stores that are files."""

    folder: Path

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path


class InADatabase:
    """For contracts of stores in Postgres."""

    url: str

    @pytest.fixture(autouse=True)
    def _url(self, database: str) -> None:
        self.url = database


def two_of_a_file(folder: Path) -> AbstractAsyncContextManager[tuple[SQLiteStore, SQLiteStore]]:
    return _closed_after(SQLiteStore(folder / "store.db"), SQLiteStore(folder / "store.db"))


def two_of_a_database(url: str) -> AbstractAsyncContextManager[tuple[PostgresStore, PostgresStore]]:
    return _closed_after(PostgresStore(url), PostgresStore(url))


def two_sealed(folder: Path) -> AbstractAsyncContextManager[tuple[SealedStore, SealedStore]]:
    ring = find_keys([bytes(32)])
    one, other = (SealedStore(SQLiteStore(folder / "store.db"), lambda: ring) for _ in range(2))
    return _closed_after(one, other)


@asynccontextmanager
async def _closed_after(one: S, other: S) -> AsyncGenerator[tuple[S, S], None]:
    try:
        yield one, other
    finally:
        await one.close()
        await other.close()
