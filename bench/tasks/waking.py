"""How soon a worker in another process goes on, and what an idle one costs: wake sockets against polling.

Every process is a real one. The one that changes inserts tasks; the worker notes when its handler begins.
Polling reads `PRAGMA data_version` of a connection of its own in a thread, at the interval that is given.

    python -m bench.tasks.waking sockets
    python -m bench.tasks.waking 5        # milliseconds between two looks
"""

import asyncio
import contextlib
import json
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from bench.disk import passing_folder
from ekiden import Context, Server
from ekiden.stores.sqlite import SQLiteStore
from ekiden.tasks.store import Signal
from ekiden.testing.task_contract import new_record

TASKS, IDLE_SECONDS, BUSY_SECONDS = 100, 10.0, 5.0
_BUSY_PAUSE = 0.005
"""Between two commits of the busy process, which do not concern the worker."""


class Polling:
    """In place of the sockets: looks whether the file has changed."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._seconds = path, seconds
        self._end = threading.Event()

    def listen(self, on_signal: Callable[[Signal], None]) -> None:
        """Call a function when the file has changed. Which task it was cannot be told."""
        threading.Thread(target=self._poll, args=(on_signal,), daemon=True).start()

    def _poll(self, on_signal: Callable[[Signal], None]) -> None:
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            before = None
            while not self._end.wait(self._seconds):
                (now,) = connection.execute("PRAGMA data_version").fetchone()
                if now != before:
                    before = now
                    on_signal(Signal("", 0.0))

    def tell(self, signal: Signal) -> None:
        """The file tells."""

    def stop_listening(self) -> None:
        """End the thread."""
        self._end.set()

    close = stop_listening


async def work(path: Path, how: str) -> None:
    """The worker: prints when each handler began."""
    store: Any = SQLiteStore(path)
    if how != "sockets":
        store.tasks._wake = Polling(path, float(how) / 1000)  # noqa: SLF001
    server = Server("server", store=store, keys=[b"k" * 32])

    @server.tool(task="required")
    async def tool(ctx: Context, amount: int, name: str, deep: Any) -> str:
        print(time.monotonic(), flush=True)
        return "done"

    async with server.running():
        print("ready", flush=True)
        await asyncio.Event().wait()


async def measure(path: Path, how: str) -> dict[str, float]:
    """Insert tasks into the file of a worker, leave it alone, and write what does not concern it."""
    store = SQLiteStore(path)
    await store.migrate()
    command = [sys.executable, "-m", "bench.tasks.waking", how, str(path)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    try:
        assert worker.stdout.readline() == "ready\n"
        taken: list[float] = []
        for number in range(TASKS):
            await asyncio.sleep(random.uniform(0.02, 0.08))
            now = time.time()
            record = new_record(f"{number}", created=now, updated=now, due=now, ttl=None)
            began = time.monotonic()
            await store.tasks.insert(record, {})
            taken.append(float(await asyncio.to_thread(worker.stdout.readline)) - began)
        await asyncio.sleep(1.0)
        idle = await _cpu(worker.pid, asyncio.sleep(IDLE_SECONDS)) / IDLE_SECONDS
        busy = await _cpu(worker.pid, _write(store, BUSY_SECONDS)) / BUSY_SECONDS
    finally:
        worker.kill()
        worker.wait(10)
        await store.close()
    taken.sort()
    return {
        "median ms": taken[len(taken) // 2] * 1000,
        "p95 ms": taken[len(taken) * 95 // 100] * 1000,
        "idle, % of a core": idle * 100,
        "beside a process that commits, % of a core": busy * 100,
    }


async def _write(store: SQLiteStore, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        await store.put_journal("journal", b"data", expires=0.0)
        await asyncio.sleep(_BUSY_PAUSE)


async def _cpu(pid: int, meanwhile: Any) -> float:
    def spent() -> float:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)

    before = spent()
    await meanwhile
    return spent() - before


def main() -> None:
    how = sys.argv[1]
    if len(sys.argv) > 2:
        asyncio.run(work(Path(sys.argv[2]), how))
        return
    with passing_folder() as folder:
        found = asyncio.run(measure(folder / "tasks.db", how))
    print(json.dumps({"how": how, **{name: round(value, 2) for name, value in found.items()}}))


if __name__ == "__main__":
    main()
