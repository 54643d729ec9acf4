"""Every store keeps the one contract."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from ekiden.tasks.store import TaskStore
from ekiden.testing import TaskStoreContract


class TestMemory(TaskStoreContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[TaskStore, TaskStore], None]:
        tasks = MemoryStore().tasks
        yield tasks, tasks


class TestSQLite(TaskStoreContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[TaskStore, TaskStore], None]:
        one, other = SQLiteStore(self.folder / "tasks.db"), SQLiteStore(self.folder / "tasks.db")
        try:
            yield one.tasks, other.tasks
        finally:
            await one.close()
            await other.close()


class TestSQLiteInMemory(TaskStoreContract):
    """One store: a second one in the same process would see nothing of it."""

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[TaskStore, TaskStore], None]:
        store = SQLiteStore(":memory:")
        try:
            yield store.tasks, store.tasks
        finally:
            await store.close()


class TestPostgres(TaskStoreContract):
    @pytest.fixture(autouse=True)
    def _url(self, database: str) -> None:
        self.url = database

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[TaskStore, TaskStore], None]:
        one, other = PostgresStore(self.url), PostgresStore(self.url)
        try:
            yield one.tasks, other.tasks
        finally:
            await one.close()
            await other.close()
