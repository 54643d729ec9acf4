"""How fast the pages of 100,000 finished tasks answer, and what an open page costs an idle server.

`python -m bench.pages` prints for SQLite and for Postgres the median and the 95th percentile of a request
for the list, for pages far back, for searches and for the story of a task, through the whole site but without
a socket; and the share of a core that `ekiden ui` takes while a page is open and nothing happens.
"""

import argparse
import asyncio
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2

from ekiden.pages.desk import Desk, Everybody
from ekiden.pages.web import Site
from ekiden.rounds.journal import Entry
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from ekiden.tasks.record import TaskRecord
from scripts.ports import free_port
from scripts.postgres import running_postgres

TOOLS: Final = ("book", "pay", "refund", "report", "ship")
STATES: Final = ("completed", "completed", "completed", "failed", "cancelled")
REQUESTS: Final = 60
IDLE_SECONDS: Final = 20.0


def finished(number: int) -> TaskRecord:
    now = 1_790_000_000.0 + number
    record = TaskRecord(
        id=f"{number:032x}",
        flow=f"flow {number}",
        answers="",
        audience="shop",
        tool=TOOLS[number % 5],
        principal=f"user {number % 1000}",
        arguments={"order": number, "note": "x" * 200},
        meta={},
        started=now,
        created=now,
        updated=now,
        ttl=None,
        poll=1.0,
    )
    record.state, record.fence = STATES[number // 5 % 5], 2
    record.result = b'{"content":[{"type":"text","text":"done"}]}'
    return record


async def fill(store: Any, count: int) -> None:
    """Write tasks with a journal of three entries each."""
    journal = {f"s:step {n}": Entry("step", "digest", {"n": n}) for n in range(3)}
    for start in range(0, count, 500):
        await asyncio.gather(
            *(store.tasks.insert(finished(n), journal) for n in range(start, min(count, start + 500)))
        )


async def request(site: Site, path: str) -> tuple[int, bytes]:
    """One GET, without a socket."""
    path, _, query = path.partition("?")
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
    await site(scope, receive, send)
    return sent[0]["status"], b"".join(event.get("body", b"") for event in sent[1:])


async def measure(store: Any, name: str, count: int) -> None:
    desk = Desk(stories=store.stories, tasks=store.tasks, access=Everybody())
    site = Site(secure=False, shared={"tabs": desk.tabs})
    desk.install(site)
    middle = f"{1_790_000_000.0 + count // 2!r}_{count // 2:032x}"
    paths = {
        "list": "/tasks",
        "list, far back": f"/tasks?after={middle}",
        "only failed": "/tasks?state=failed",
        "only waiting (none)": "/tasks?state=waiting",
        "search a tool": "/tasks?q=refund",
        "search a tool, failed, far back": f"/tasks?q=refund&state=failed&after={middle}",
        "search a principal": f"/tasks?q={quote('user 77')}",
        "search an id": f"/tasks?q={count // 3:032x}",
        "story": f"/tasks/{count // 3:032x}",
    }
    for what, path in paths.items():
        taken: list[float] = []
        for _ in range(REQUESTS):
            began = time.perf_counter()
            status, _ = await request(site, path)
            taken.append((time.perf_counter() - began) * 1000)
            assert status == 200, (path, status)
        p95 = statistics.quantiles(taken, n=20)[18]
        print(f"{name:9} {what:33} median {statistics.median(taken):6.1f} ms   p95 {p95:6.1f} ms", flush=True)


async def idle(url: str, name: str) -> None:
    """The share of a core that `ekiden ui` takes while a page listens and nothing happens."""
    command = (sys.executable, "-m", "ekiden.cli", "ui", "--store", url, "--port", str(free_port()))
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = re.search(r"http\S+", process.stderr.readline())
        assert found is not None
        origin = found[0].partition("/calls")[0]
        async with httpx2.AsyncClient(follow_redirects=True, timeout=None) as client:
            await client.get(found[0])
            async with client.stream("GET", origin + "/live/tasks"):
                await asyncio.sleep(2)
                before = cpu(process.pid)
                await asyncio.sleep(IDLE_SECONDS)
                share = (cpu(process.pid) - before) / IDLE_SECONDS
        print(f"{name:9} an open page, nothing happens:   {share * 100:.2f} % of a core", flush=True)
    finally:
        process.terminate()
        process.communicate(timeout=20)


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def opened(store: Any) -> AsyncGenerator[Any, None]:
    await store.migrate()
    try:
        yield store
    finally:
        await store.close()


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        async with opened(SQLiteStore(path, synchronous="NORMAL")) as store:
            await fill(store, count)
            await measure(store, "SQLite", count)
        await idle(f"sqlite:///{path}", "SQLite")
    with running_postgres() as postgres:
        url = postgres.new_database()
        async with opened(PostgresStore(url)) as store:
            await fill(store, count)
            await measure(store, "Postgres", count)
        await idle(url, "Postgres")
    print(f"memory at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    asyncio.run(main(parser.parse_args().count))
