"""A SQLite file that is locked, closed or gone in the very moment in which it is opened."""

import asyncio
import contextlib
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from ekiden.errors import StoreUnavailable, UsageError
from ekiden.stores.sqlite import SQLiteStore, opening
from ekiden.stores.sqlite import file as sqlite_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that SQLite has made in its usual mode, and not for us."""
    path = tmp_path / "tasks.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (a)")
    return path


async def test_a_file_that_somebody_writes_is_opened_when_that_is_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself does not wait where the mode of a file is to be changed."""
    tried, usual = threading.Event(), opening._is_busy

    def noted(error: sqlite3.Error) -> bool:
        tried.set()
        return usual(error)

    monkeypatch.setattr(opening, "_is_busy", noted)
    store = SQLiteStore(path, busy_seconds=60.0)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        keeping = asyncio.create_task(store.put_journal("a", b"a", expires=100.0))
        assert await asyncio.to_thread(tried.wait, 30)
        assert not keeping.done()
        other.execute("ROLLBACK")
        async with asyncio.timeout(30):
            await keeping
    assert await store.get_journal("a") == b"a"
    await store.close()


async def test_a_file_that_stays_locked_is_an_unavailable_store(path: Path) -> None:
    store = SQLiteStore(path, busy_seconds=0.05)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="cannot be opened: database is locked"):
            await store.migrate()
        other.execute("ROLLBACK")
    await store.migrate()
    await store.close()


async def test_a_file_of_another_kind_cannot_be_used(tmp_path: Path) -> None:
    """That does not change by itself, so it is not said to be away."""
    (tmp_path / "tasks.db").write_bytes(b"no database at all " * 100)
    store = SQLiteStore(tmp_path / "tasks.db", busy_seconds=60.0)
    async with asyncio.timeout(30):
        with pytest.raises(UsageError, match="cannot be opened: file is not a database"):
            await store.migrate()
    await store.close()


@pytest.mark.parametrize("why", ["it is of another kind", "it is newer"])
async def test_a_file_that_could_not_be_opened_is_not_held_open(path: Path, why: str) -> None:
    """Not even as long as somebody has the error."""
    if why == "it is newer":
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA user_version = 99")
    else:
        path.write_bytes(b"no database at all " * 100)
    store = SQLiteStore(path)
    with pytest.raises(UsageError) as error:
        await store.migrate()
    assert handles(path) == 0, error
    await store.close()


def handles(path: Path) -> int:
    """How often this process has the file open."""
    opened = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum(entry.readlink() == path for entry in opened if os.path.lexists(entry))


async def test_a_file_that_is_closed_whenever_it_was_opened_is_an_unavailable_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look does not try for ever."""
    monkeypatch.setattr(sqlite_file, "_READ_TRIES", 5)
    store = SQLiteStore(tmp_path / "tasks.db")
    usual, opened = store._file.open, list[str]()

    async def closed_again() -> None:
        await usual()
        opened.append("opened")
        await store._file.close()

    monkeypatch.setattr(store._file, "open", closed_again)
    with pytest.raises(StoreUnavailable, match="closed by others all the time; try again"):
        await store.get_journal("any")
    with pytest.raises(StoreUnavailable, match="closed by others all the time; try again"):
        await store.tasks.entries("any")
    assert len(opened) == 10
    monkeypatch.setattr(store._file, "open", usual)
    assert await store.get_journal("any") is None
    assert await store.tasks.entries("any") == {}
    await store.close()


async def test_that_a_file_is_gone_is_reported_by_the_first_thread_that_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one uses the file that is there then."""
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.migrate()
    (tmp_path / "tasks.db").unlink()
    noticed, usual = threading.Event(), sqlite_file.is_there

    def is_there(path: str, opened: opening.Identity) -> bool:
        found = usual(path, opened)
        if threading.current_thread() is not threading.main_thread():
            noticed.set()
        return found

    monkeypatch.setattr(sqlite_file, "is_there", is_there)
    with store._file._open.writing:
        looking = asyncio.create_task(store.tasks.entries("any"))
        assert await asyncio.to_thread(noticed.wait, 30)
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            store._file._check()
    async with asyncio.timeout(30):
        assert await looking == {}
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    await store.close()
