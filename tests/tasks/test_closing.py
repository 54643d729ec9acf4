"""Who opens a store closes it."""

import asyncio
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from ekiden import Context, Server
from ekiden.server.sealing.keys import new_key
from ekiden.stores.memory import MemoryStore
from ekiden.stores.sqlite import SQLiteStore
from tests.acceptance.driving import KEY
from tests.tasks.driving import QUICK, TaskClient, new_server


def tool_of(server: Server) -> None:
    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return str(await ctx.step(lambda: "done", key="done"))


def open_files(path: Path) -> list[str]:
    """What of a store's files this process has open."""
    return [file.path for file in psutil.Process().open_files() if file.path.startswith(str(path))]


async def test_a_store_opened_by_its_name_is_closed_when_the_server_stops(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    server = new_server(f"sqlite:///{path}")
    tool_of(server)
    for _ in range(2):  # And opened again, if the server starts again.
        async with server.running():
            client = TaskClient(server)
            assert await client.text(await client.start()) == "done"
            assert open_files(path)
        assert open_files(path) == []


async def test_a_store_that_was_handed_in_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    store = SQLiteStore(path)
    server = new_server(store)
    tool_of(server)
    async with server.running():
        client = TaskClient(server)
        assert await client.text(await client.start()) == "done"
    assert open_files(path)
    await store.close()
    assert open_files(path) == []


async def test_the_connections_to_postgres_are_closed_when_the_server_stops(database: str) -> None:
    def others() -> int:
        with psycopg.connect(database, autocommit=True) as connection:
            row: Any = connection.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
        return int(row[0])

    server = new_server(database)
    tool_of(server)
    for _ in range(2):
        async with server.running():
            client = TaskClient(server)
            assert await client.text(await client.start()) == "done"
            assert others() > 0
        async with asyncio.timeout(10):
            while others():
                await asyncio.sleep(0.01)  # A backend ends a moment after its connection.


async def test_the_store_is_closed_although_the_lifespan_fails(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[None, None]:
        yield
        raise RuntimeError("the lifespan ends badly")

    server = Server("tasks", keys=[KEY], store=f"sqlite:///{path}", tasks=QUICK, lifespan=lifespan)
    tool_of(server)
    await server.endpoint.start()
    client = TaskClient(server)
    assert await client.text(await client.start()) == "done"
    with pytest.raises(RuntimeError, match="ends badly"):
        await server.endpoint.stop()
    assert open_files(path) == []


async def test_a_store_that_is_forgotten_closes_its_connections(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.migrate()
    assert await store.tasks.next_due("a server", ()) is None
    cycle: list[Any] = [store]
    cycle.append(cycle)
    del store, cycle
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with asyncio.timeout(10):
            gc.collect()
            while open_files(tmp_path / "tasks.db"):
                await asyncio.sleep(
                    0.01
                )  # The thread that read last lets go of it a moment after its answer.
                gc.collect()
    assert [str(warning.message) for warning in warned if "tasks.db" in str(warning.message)] == []


def test_a_process_whose_server_stopped_warns_of_nothing(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from ekiden import Server\n"
        "from ekiden.stores.sqlite import SQLiteStore\n"
        "async def main():\n"
        "    server = Server('s', store=f'sqlite:///{sys.argv[1]}')\n"
        "    server.tool(task='required')(tool)\n"
        "    async with server.running():\n"
        "        await server._store.migrate()\n"
        "    forgotten = SQLiteStore(sys.argv[1])\n"
        "    await forgotten.migrate()\n"
        "async def tool() -> str:\n"
        "    return 'done'\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program, str(tmp_path / "tasks.db")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "EKIDEN_KEYS": new_key()},
    )
    assert (ended.returncode, ended.stderr) == (0, "")


async def test_a_store_that_swallows_a_cancellation_is_not_asked_after_the_end() -> None:
    """Before Python 3.12 what waits with a timeout may do so, where both come at the same moment."""
    store = MemoryStore()
    asked: list[str] = []
    forget = store.tasks.forget

    async def deaf(*, before: float, audience: str | None = None) -> int:
        asked.append("begun")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            asked.append("swallowed")
        return await forget(before=before)

    store.tasks.forget = deaf  # type: ignore[method-assign]
    server = new_server(store)
    tool_of(server)
    for _ in range(2):
        before = asyncio.all_tasks()
        async with asyncio.timeout(30), server.running():
            await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == before
    assert asked == ["begun", "swallowed"] * 2
