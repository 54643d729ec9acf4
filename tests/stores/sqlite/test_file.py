"""A SQLite file that is closed, deleted or replaced while it is in use, and whose it is."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ekiden.errors import StoreUnavailable
from ekiden.rounds.ledger import Busy, Claimed, Recorded, Refused
from ekiden.stores.sqlite import SQLiteStore
from ekiden.stores.sqlite import file as sqlite_file


async def test_a_store_is_closed_while_others_write_to_it(tmp_path: Path) -> None:
    """A write that comes too late opens it again."""
    store = SQLiteStore(tmp_path / "rounds.db", synchronous="NORMAL")
    for turn in range(40):
        writes = [
            asyncio.create_task(
                store.claim(f"{turn}.{n}", "history", now=1.0, lease=10.0, expires=100.0, instead_of=None)
            )
            for n in range(20)
        ]
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        late = [store.put_journal(f"{turn}.{n}", b"late", expires=100.0) for n in range(20)]
        await asyncio.gather(*writes, closing, *late)
        assert all(isinstance(write.result(), Claimed) for write in writes)
    assert await store.get_journal("39.19") == b"late"
    await store.close()


async def test_a_write_that_comes_while_the_file_is_closed_waits_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread writes and closes: nothing is written on a second connection meanwhile."""
    store = SQLiteStore(tmp_path / "rounds.db")
    await store.put_journal("early", b"early", expires=100.0)
    closing_began, go_on = asyncio.Event(), threading.Event()
    loop, events, close = asyncio.get_running_loop(), list[str](), store._file._open.close

    def slow_close() -> None:
        loop.call_soon_threadsafe(closing_began.set)
        assert go_on.wait(10)
        close()
        events.append(f"closed in {threading.get_ident()}")

    def work(connection: sqlite3.Connection) -> None:
        events.append(f"written in {threading.get_ident()}")

    monkeypatch.setattr(store._file._open, "close", slow_close)
    closes = asyncio.create_task(store.close())
    await closing_began.wait()
    write = asyncio.create_task(store._file.write(work))
    await asyncio.sleep(0.05)
    assert events == []
    go_on.set()
    async with asyncio.timeout(10):
        await asyncio.gather(closes, write)
    assert [event.split()[0] for event in events] == ["closed", "written"]
    assert len({event.split()[-1] for event in events}) == 1
    assert await store.get_journal("early") == b"early"
    await store.close()


async def test_a_read_that_comes_while_the_file_is_closed_is_not_made_on_a_file_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long read delays the closing. A read meanwhile opens the file again, and sees if it is gone."""
    store = SQLiteStore(tmp_path / "rounds.db")
    await store.put_journal("early", b"early", expires=100.0)
    closing_began, scanning, go_on = threading.Event(), threading.Event(), threading.Event()
    close = store._file._open.close

    def noted_close() -> None:
        closing_began.set()
        close()

    def long_read(connection: sqlite3.Connection) -> None:
        scanning.set()
        assert go_on.wait(10)

    monkeypatch.setattr(store._file._open, "close", noted_close)
    long = asyncio.create_task(store._file.scan(long_read))
    assert await asyncio.to_thread(scanning.wait, 10)
    closing = asyncio.create_task(store.close())
    assert await asyncio.to_thread(closing_began.wait, 10)
    await asyncio.sleep(0.02)  # It waits for the long read now.
    late = asyncio.create_task(store.get_journal("early"))
    await asyncio.sleep(0.02)
    go_on.set()
    await asyncio.gather(long, closing)
    assert await late == b"early"
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(StoreUnavailable, match="deleted"):
        await store.put_journal("new", b"new", expires=100.0)
    await store.put_journal("new", b"new", expires=100.0)
    assert await store.get_journal("new") == b"new"
    assert await store.get_journal("early") is None
    await store.close()


def test_two_processes_write_read_and_close_one_file_all_the_time(tmp_path: Path) -> None:
    """No round is lost, run twice or forgotten, whichever process closes the file meanwhile."""
    command = [sys.executable, "-m", "tests.stores.sqlite.closing_writer", str(tmp_path / "rounds.db")]
    writers = [subprocess.Popen([*command, who], stdout=subprocess.PIPE) for who in ("one", "other")]
    try:
        assert [writer.communicate(timeout=60)[0] for writer in writers] == [b"120 rounds\n"] * 2
    finally:
        for writer in writers:
            writer.kill()
            writer.wait(10)
    assert [file.name for file in tmp_path.iterdir()] == ["rounds.db"], "the last one tidied up"


async def test_a_write_that_fails_half_way_fails_alone(tmp_path: Path) -> None:
    """What others write in the same transaction is kept; nothing of its own is."""
    store = SQLiteStore(tmp_path / "rounds.db")
    await store.migrate()

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO journals VALUES ('half', x'00', 100.0)")
        raise ValueError("half way")

    writes = [store.put_journal("one", b"1", expires=100.0), store._file.write(half)]
    done = await asyncio.gather(
        *writes, store.put_journal("other", b"2", expires=9.0), return_exceptions=True
    )
    assert [type(each) for each in done] == [type(None), ValueError, type(None)]
    assert [await store.get_journal(name) for name in ("one", "half", "other")] == [b"1", None, b"2"]
    await store.close()


async def test_an_error_of_the_file_undoes_what_was_written_and_the_next_write_goes_on(
    tmp_path: Path,
) -> None:
    store = SQLiteStore(tmp_path / "rounds.db")
    await store.migrate()

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO journals VALUES ('half', x'00', 100.0)")
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(StoreUnavailable, match="cannot be written: disk I/O error"):
        await store._file.write(half)
    await store.put_journal("next", b"2", expires=9.0)
    assert [await store.get_journal(name) for name in ("half", "next")] == [None, b"2"]
    await store.close()


async def test_who_writes_in_step_is_committed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit waits for the disk: those whose writes were in the last one are all in the next one."""
    monkeypatch.setattr(sqlite_file, "_TOLD_SECONDS", 10.0)
    store = SQLiteStore(tmp_path / "rounds.db")
    await store.migrate()
    commits, commit = list[int](), store._file._commit

    def counted(batch: list[Any]) -> None:
        commits.append(len(batch))
        commit(batch)

    monkeypatch.setattr(store._file, "_commit", counted)

    async def writer(name: str) -> None:
        for number in range(10):
            await store.put_journal(f"{name}.{number}", b"x", expires=100.0)

    await asyncio.gather(*(writer(str(number)) for number in range(20)))
    assert sum(commits) == 200
    assert len(commits) < 16
    await store.close()


async def test_what_waits_to_be_written_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "_MOST_WAITING", 1000)
    store = SQLiteStore(tmp_path / "rounds.db")
    await store.migrate()
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def block(connection: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(10)

    blocking = asyncio.create_task(store._file.write(block))
    await begun.wait()
    waiting = asyncio.create_task(store.put_journal("large", b"x" * 1001, expires=100.0))
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="too much waits"):
        await store.put_journal("more", b"x", expires=100.0)
    go_on.set()
    await asyncio.gather(blocking, waiting)
    await store.put_journal("more", b"x", expires=100.0)
    await store.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
async def test_the_file_is_its_users_alone(
    tmp_path: Path, umask: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also what SQLite keeps beside it."""
    before = os.umask(umask)
    try:
        store = SQLiteStore(tmp_path / "tasks.db")
        await store.put_journal("a", b"a", expires=100.0)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"tasks.db": 0o600, "tasks.db-wal": 0o600, "tasks.db-shm": 0o600}
    assert caplog.records == []
    await store.close()


async def test_a_file_that_others_can_read_is_reported_once_and_left_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tasks.db"
    path.touch()
    path.chmod(0o644)
    store = SQLiteStore(path)
    for _ in range(2):
        await store.put_journal("a", b"a", expires=100.0)
        await store.close()
    reports = [record.getMessage() for record in caplog.records]
    assert len(reports) == 1
    assert reports[0].startswith(f"Other users may read or change {path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("how", ["deleted", "replaced", "moved"])
async def test_a_file_that_is_gone_is_noticed_and_the_next_one_used(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tasks.db"
    store = SQLiteStore(path)
    await store.put_journal("old", b"old", expires=100.0)
    assert await store.get_journal("old") == b"old"
    if how == "deleted":
        path.unlink()
    elif how == "moved":
        path.rename(tmp_path / "elsewhere.db")
    else:
        other = SQLiteStore(tmp_path / "other.db")
        await other.put_journal("restored", b"restored", expires=100.0)
        await other.close()
        (tmp_path / "other.db").rename(path)
    with pytest.raises(StoreUnavailable, match="was deleted or replaced while it was in use"):
        await store.put_journal("lost", b"lost", expires=100.0)
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    await store.put_journal("new", b"new", expires=100.0)
    kept = SQLiteStore(path)
    found = [await kept.get_journal(name) for name in ("old", "lost", "new", "restored")]
    assert found == [None, None, b"new", b"restored" if how == "replaced" else None]
    await kept.close()
    await store.close()


async def test_a_file_whose_folder_is_gone_is_an_unavailable_store(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    store = SQLiteStore(folder / "tasks.db")
    await store.put_journal("old", b"old", expires=100.0)
    shutil.rmtree(folder)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.put_journal("lost", b"lost", expires=100.0)
    folder.mkdir()
    await store.put_journal("new", b"new", expires=100.0)
    assert await store.get_journal("new") == b"new"
    await store.close()


async def test_who_only_looks_notices_that_the_file_is_gone(tmp_path: Path) -> None:
    """A worker without work does not write."""
    store = SQLiteStore(tmp_path / "tasks.db")
    await store.migrate()
    (tmp_path / "tasks.db").unlink()
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.tasks.due("server", ("tool",), now=1.0, limit=1)
    assert await store.tasks.due("server", ("tool",), now=1.0, limit=1) == []
    await store.close()


async def test_a_look_makes_no_file(tmp_path: Path) -> None:
    """A file that is gone is made again by who writes, and nobody else may read it then."""
    path = tmp_path / "a file #1 100%.db"
    store = SQLiteStore(path)
    await store.migrate()
    path.unlink()
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await store.get_journal("any")
    assert not path.exists()
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.migrate()
    assert await store.get_journal("any") is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await store.close()


async def test_a_claim_that_cannot_be_had_does_not_wait_for_who_writes(tmp_path: Path) -> None:
    """Another history is refused, an end is told, and who waits for an owner is told so: all by a look."""
    store = SQLiteStore(tmp_path / "rounds.db", busy_seconds=60.0)
    times = {"now": 1.0, "lease": 10.0, "expires": 100.0}
    for round_id in ("running", "ended"):
        assert await store.claim(round_id, "history", **times) == Claimed(1, {})
    assert await store.finish("ended", 1, b"end")
    with contextlib.closing(sqlite3.connect(tmp_path / "rounds.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(10):
            assert await store.claim("running", "another", **times) == Refused()
            assert await store.claim("ended", "another", **times) == Refused()
            assert await store.claim("ended", "history", **times) == Recorded(b"end")
            assert await store.claim("running", "history", **times) == Busy(1, 11.0)
        other.execute("ROLLBACK")
    await store.close()


async def test_what_is_looked_at_again_is_not_read_from_the_file_again(tmp_path: Path) -> None:
    """Journals of 6 MB together, each on pages of its own: more than SQLite keeps by itself."""
    store = SQLiteStore(tmp_path / "rounds.db", synchronous="NORMAL")
    for number in range(1000):
        await store.put_journal(str(number), b"x" * 6000, expires=100.0)
    await _look_at_all(store)
    before = _reads_of_this_process()
    await _look_at_all(store)
    assert _reads_of_this_process() - before < 500
    await store.close()


async def _look_at_all(store: SQLiteStore) -> None:
    for number in range(1000):
        assert await store.get_journal(str(number)) == b"x" * 6000


def _reads_of_this_process() -> int:
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["syscr"])
