"""Stores to run the same tests on."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from ekiden.stores.memory import MemoryStore
from ekiden.stores.sqlite import SQLiteStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Any, None]:
    made: Any = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "tasks.db")
    yield made
    await made.close()
