"""The wake sockets of a SQLite store: heard by all, their owner's alone, and gone with the last."""

import asyncio
import gc
import logging
import os
import queue
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from ekiden.bus.datagrams import folder_beside
from ekiden.stores.sqlite import SQLiteStore
from ekiden.stores.sqlite.wake import WakeSocket
from ekiden.tasks.store import Signal
from ekiden.testing.task_contract import new_record

_SIGNAL = Signal("a task", None)


@pytest.fixture(params=["beside", "among the temporary files"])
def place(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Generator[tuple[str, Path], None, None]:
    """The path of a store, and that of its sockets' folder: beside it, or elsewhere where it is too long."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        temporary = Path(short) / "t"
        temporary.mkdir()
        monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
        deep = Path(short) if request.param == "beside" else Path(short) / ("deep" * 25)
        deep.mkdir(exist_ok=True)
        path = str(deep / "a.db")
        folder = folder_beside(path, "wake")
        assert folder.parent == (deep if request.param == "beside" else temporary)
        yield path, folder


def hearing(path: str) -> tuple[WakeSocket, "queue.Queue[Signal]"]:
    heard: queue.Queue[Signal] = queue.Queue()
    wake = WakeSocket(path)
    wake.listen(heard.put)
    return wake, heard


def test_the_folder_is_private(place: tuple[str, Path]) -> None:
    path, folder = place
    wake, _ = hearing(path)
    with closing(wake):
        assert stat.S_IMODE(folder.lstat().st_mode) == 0o700


def test_a_folder_that_was_left_open_to_others_is_closed_to_them(place: tuple[str, Path]) -> None:
    path, folder = place
    folder.mkdir(mode=0o755)
    wake, _ = hearing(path)
    with closing(wake):
        assert stat.S_IMODE(folder.lstat().st_mode) == 0o700


def test_the_folder_goes_with_the_last_who_leaves(place: tuple[str, Path]) -> None:
    path, folder = place
    one, heard = hearing(path)
    other, _ = hearing(path)
    other.close()
    assert len(list(folder.iterdir())) == 1
    other.tell(_SIGNAL)
    assert heard.get(timeout=5) == _SIGNAL
    one.close()
    assert not folder.exists()


def test_who_comes_back_is_heard_again(place: tuple[str, Path]) -> None:
    path, folder = place
    one, heard = hearing(path)
    one.close()
    one.listen(heard.put)
    other = WakeSocket(path)
    other.tell(_SIGNAL)
    assert heard.get(timeout=5) == _SIGNAL
    one.close()
    other.close()
    assert not folder.exists()


def test_the_sockets_of_the_dead_do_not_keep_the_folder(place: tuple[str, Path]) -> None:
    path, folder = place
    program = "import os, sys; from ekiden.stores.sqlite.wake import WakeSocket\n"
    program += "wake = WakeSocket(sys.argv[1]); wake.listen(print); os._exit(0)"
    temporary = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    subprocess.run([sys.executable, "-c", program, path], check=True, timeout=60, env=temporary)
    assert len(list(folder.iterdir())) == 1
    wake, _ = hearing(path)
    wake.close()
    assert not folder.exists()


def test_a_process_that_ends_without_closing_its_store_leaves_nothing(place: tuple[str, Path]) -> None:
    path, folder = place
    program = "import sys; from ekiden.stores.sqlite.wake import WakeSocket\n"
    program += "wake = WakeSocket(sys.argv[1]); wake.listen(print)"
    temporary = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    subprocess.run([sys.executable, "-c", program, path], check=True, timeout=60, env=temporary)
    assert not folder.exists()


def test_a_folder_behind_a_link_is_not_used(
    place: tuple[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    path, folder = place
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("kept")
    folder.symlink_to(elsewhere)
    with caplog.at_level(logging.WARNING, "ekiden.stores"):
        wake, _ = hearing(path)
        wake.tell(_SIGNAL)
        wake.listen(print)
        wake.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"Processes that share the store notice changes late: {folder} is not a folder of this user"
    ]
    assert [entry.name for entry in elsewhere.iterdir()] == ["precious"]
    assert folder.is_symlink()


def test_who_only_tells_distrusts_it_too(place: tuple[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    path, folder = place
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("kept")
    folder.symlink_to(elsewhere)
    with caplog.at_level(logging.WARNING, "ekiden.stores"), closing(WakeSocket(path)) as wake:
        wake.tell(_SIGNAL)
        wake.tell(_SIGNAL)
    assert len(caplog.records) == 1
    assert (elsewhere / "precious").exists()


def test_the_folder_of_another_user_is_not_used(
    place: tuple[str, Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = place
    folder.mkdir(mode=0o777)
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    with caplog.at_level(logging.WARNING, "ekiden.stores"):
        wake, _ = hearing(path)
        wake.close()
    assert len(caplog.records) == 1
    assert list(folder.iterdir()) == []


async def test_a_store_without_sockets_works(place: tuple[str, Path]) -> None:
    path, folder = place
    folder.write_text("in the way")
    store = SQLiteStore(path)
    end = store.tasks.watch(lambda _: None)
    assert await store.tasks.next_due("a server", ()) is None
    end()
    await store.close()
    assert folder.read_text() == "in the way"


async def test_who_watches_no_more_leaves_no_socket(place: tuple[str, Path]) -> None:
    """Others would go on writing to it. It comes back with the next who watches."""
    path, folder = place
    store, other = SQLiteStore(path), SQLiteStore(path)
    heard = asyncio.Queue[str]()
    first, last = (store.tasks.watch(lambda signal: heard.put_nowait(signal.task_id)) for _ in range(2))
    first()
    await other.tasks.insert(new_record("for the last"), {})
    async with asyncio.timeout(20):
        assert await heard.get() == "for the last"
    last()
    assert not folder.exists()
    store.tasks.watch(lambda _: None)
    assert len(list(folder.iterdir())) == 1
    await other.close()
    await store.close()


async def test_a_store_that_is_closed_leaves_no_folder(place: tuple[str, Path]) -> None:
    path, folder = place
    store = SQLiteStore(path)
    store.tasks.watch(lambda _: None)
    assert folder.is_dir()
    await store.close()
    assert not folder.exists()


async def test_a_store_that_is_closed_leaves_its_file_only(place: tuple[str, Path]) -> None:
    """Whatever was heard: tasks, stories, what servers tell each other."""
    path, _ = place
    store = SQLiteStore(path)
    assert store.bus is not None
    store.tasks.watch(lambda _: None)
    await store.stories.watch(lambda _: None)
    await store.bus.listen(lambda _: None)
    folders = [folder_beside(path, what) for what in ("wake", "stories", "bus")]
    assert [folder.is_dir() for folder in folders] == [True] * 3
    await store.migrate()
    await store.close()
    assert not any(folder.exists() for folder in folders)
    assert [file.name for file in Path(path).parent.iterdir() if file.is_file()] == ["a.db"]


def test_one_that_is_forgotten_leaves_no_folder(place: tuple[str, Path]) -> None:
    path, folder = place
    wake, _ = hearing(path)
    assert folder.is_dir()
    del wake
    gc.collect()
    assert not folder.exists()


async def test_a_store_in_memory_hears_of_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others that have theirs in memory, in the same folder, have other tasks."""
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore(":memory:")
    end = store.tasks.watch(lambda signal: None)
    assert list(tmp_path.iterdir()) == []
    assert not folder_beside(":memory:", "wake").exists()
    end()
    await store.close()
