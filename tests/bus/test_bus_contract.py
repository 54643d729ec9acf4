"""Every bus keeps the one contract."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from ekiden.bus import datagrams
from ekiden.bus.datagrams import Datagrams
from ekiden.bus.port import Bus
from ekiden.bus.sockets import SocketBus
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing import BusContract
from tests.serving import soon


@pytest.fixture
def _senders_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy, too, nobody is taken to be dead who sends."""
    monkeypatch.setattr(datagrams, "_OLD_SECONDS", 60.0)


@pytest.mark.usefixtures("_senders_stay")
class TestSockets(BusContract):
    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[Bus, Bus], None]:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            one, other = SocketBus(Path(folder, "bus")), SocketBus(Path(folder, "bus"))
            try:
                yield one, other
            finally:
                await one.close()
                await other.close()


@pytest.mark.usefixtures("_senders_stay")
class TestSQLite(BusContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[Bus, Bus], None]:
        one, other = SQLiteStore(self.folder / "store.db"), SQLiteStore(self.folder / "store.db")
        assert one.bus is not None
        assert other.bus is not None
        try:
            yield one.bus, other.bus
        finally:
            await one.close()
            await other.close()


class TestPostgres(BusContract):
    @pytest.fixture(autouse=True)
    def _url(self, database: str) -> None:
        self.url = database

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[Bus, Bus], None]:
        one, other = PostgresStore(self.url), PostgresStore(self.url)
        try:
            yield one.bus, other.bus
        finally:
            await one.close()
            await other.close()


async def test_a_message_arrives_although_its_sender_is_killed_right_after() -> None:
    """Over sockets: it is in the listener's queue when `publish` returns."""
    program = (
        "import asyncio, os, signal, sys\nfrom pathlib import Path\n"
        "from ekiden.bus.sockets import SocketBus\n"
        "async def main():\n"
        "    SocketBus(Path(sys.argv[1])).publish(b'my last words')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        bus = SocketBus(Path(folder, "bus"))
        heard: asyncio.Queue[bytes | None] = asyncio.Queue()
        await bus.listen(heard.put_nowait)
        command = [sys.executable, "-c", program, str(Path(folder, "bus"))]
        ended = await asyncio.to_thread(subprocess.run, command, timeout=60)
        assert ended.returncode == -signal.SIGKILL
        assert await soon(heard.get()) == b"my last words"
        await bus.close()


async def test_a_killed_listener_holds_nobody_up() -> None:
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom ekiden.bus.sockets import SocketBus\n"
        "async def main():\n"
        "    bus = SocketBus(Path(sys.argv[1]))\n"
        "    await bus.listen(print)\n"
        "    print('listens', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder, "bus")
        bus = SocketBus(place)
        command = [sys.executable, "-c", program, str(place)]
        listener = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert listener.stdout is not None
        assert await asyncio.to_thread(listener.stdout.readline) == b"listens\n"
        os.kill(listener.pid, signal.SIGSTOP)  # It reads nothing, so its queue fills up.
        published = 0
        while not bus._waiting and published < 100_000:
            bus.publish(b"a message of some length " * 400)
            published += 1
        assert bus._waiting
        listener.kill()
        await asyncio.to_thread(listener.wait, 20)
        listener.stdout.close()
        async with asyncio.timeout(20):
            while bus._waiting:
                await asyncio.sleep(0.01)
        bus.publish(b"one more")  # The last of those that waited may have found it while it died.
        await bus.close()
        assert not place.exists() or not list(place.iterdir())


async def test_a_listener_whose_connection_was_cut_is_told_that_it_missed_something(database: str) -> None:
    one, other = PostgresStore(database), PostgresStore(database)
    heard: asyncio.Queue[bytes | None] = asyncio.Queue()
    await other.bus.listen(heard.put_nowait)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%ekiden_bus%'"
        )
    assert await soon(heard.get()) is None
    one.bus.publish(b"and now")
    assert await soon(heard.get()) == b"and now"
    await one.close()
    await other.close()


async def test_what_else_lies_in_the_folder_harms_nobody_and_stays() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder, "bus")
        one, other = SocketBus(place), SocketBus(place)
        heard: asyncio.Queue[bytes | None] = asyncio.Queue()
        await other.listen(heard.put_nowait)
        (place / "folder").mkdir()
        (place / "folder" / "note").write_text("mine")
        (place / "file").write_text("mine")
        (place / "link").symlink_to("folder")
        (place / "nowhere").symlink_to("not there")
        os.mkfifo(place / "pipe")
        for number in range(3):
            one.publish(b"%d" % number)
        assert [await soon(heard.get()) for _ in range(3)] == [b"0", b"1", b"2"]
        assert not one._waiting
        await one.close()
        await other.close()
        left = {entry.name for entry in place.iterdir()}
        assert left == {"folder", "file", "link", "nowhere", "pipe"}


async def test_who_never_listened_tidies_up_after_listeners_that_were_killed() -> None:
    program = (
        "import asyncio, os, signal, sys\nfrom pathlib import Path\n"
        "from ekiden.stores.sqlite import SQLiteStore\n"
        "async def main():\n"
        "    store = SQLiteStore(Path(sys.argv[1]))\n    await store.bus.listen(print)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        file, sockets = Path(folder, "store.db"), Path(folder, "store.db-bus")
        ended = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", program, str(file)], timeout=60
        )
        assert ended.returncode == -signal.SIGKILL
        assert len(list(sockets.iterdir())) == 1
        await SQLiteStore(file).close()
        assert not sockets.exists()


@asynccontextmanager
async def two_on_sockets() -> AsyncGenerator[
    tuple[SocketBus, SocketBus, Path, asyncio.Queue[bytes | None]], None
]:
    """Two ways into one bus, its folder, and what the second hears."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder, "bus")
        one, other = SocketBus(place), SocketBus(place)
        heard: asyncio.Queue[bytes | None] = asyncio.Queue()
        await other.listen(heard.put_nowait)
        try:
            yield one, other, place, heard
        finally:
            await one.close()
            await other.close()
            assert not place.exists() or not list(place.iterdir())


@pytest.mark.parametrize("removed", ["the socket", "the folder"])
async def test_a_listener_whose_socket_was_removed_is_told_and_hears_again(removed: str) -> None:
    async with two_on_sockets() as (one, _, place, heard):
        (socket,) = place.iterdir()
        socket.unlink()
        if removed == "the folder":
            place.rmdir()
        one.publish(b"nobody hears this")
        assert await soon(heard.get()) is None
        one.publish(b"and now")
        assert await soon(heard.get()) == b"and now"


async def test_a_listener_is_told_that_it_missed_what_a_killed_sender_kept_for_it() -> None:
    program = (
        "import asyncio, os, signal, sys\nfrom pathlib import Path\n"
        "from ekiden.bus.sockets import SocketBus\n"
        "async def main():\n"
        "    bus = SocketBus(Path(sys.argv[1]))\n"
        "    bus.publish(b'the first')\n"
        "    while not bus._waiting:\n"
        "        bus.publish(b'a message of some length ' * 400)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())"
    )
    reads = threading.Event()
    heard: list[bytes | None] = []
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder, "bus")
        sockets = Datagrams(place, warning="")

        def hear(message: bytes) -> None:
            assert reads.wait(60)
            heard.append(message)

        sockets.listen(hear, lambda: heard.append(None))
        ended = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", program, str(place)], timeout=60
        )
        assert ended.returncode == -signal.SIGKILL
        reads.set()
        async with asyncio.timeout(20):
            while None not in heard:
                await asyncio.sleep(0.01)
        sockets.close()
        assert heard[0] == b"the first"
        assert not place.exists()


@pytest.mark.usefixtures("_senders_stay")
async def test_what_waits_for_a_slow_listener_is_not_taken_for_lost() -> None:
    async with two_on_sockets() as (one, _, place, heard):
        burst = [b"%d" % number for number in range(900)]
        for message in burst:
            one.publish(message)
        assert [await soon(heard.get()) for _ in burst] == burst
        async with asyncio.timeout(20):
            while one._waiting:
                await asyncio.sleep(0.01)
        assert [path.suffix for path in place.iterdir()] == [""]


async def test_a_message_that_was_sent_twice_is_heard_once_and_one_that_lacks_is_known(database: str) -> None:
    """Its sender may not know whether it has left."""
    store = PostgresStore(database)
    heard: asyncio.Queue[bytes | None] = asyncio.Queue()
    await store.bus.listen(heard.put_nowait)
    with psycopg.connect(database, autocommit=True) as connection:
        for payload in ("other 1 a", "other 2 b", "other 1 a", "other 2 b", "other 3 c", "other 5 e", "?"):
            connection.execute("SELECT pg_notify('ekiden_bus', %s)", (payload,))
    assert [await soon(heard.get()) for _ in range(6)] == [b"a", b"b", b"c", None, b"e", None]
    await store.close()
