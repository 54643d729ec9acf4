"""Soak a server: `python -m tests.soak.run --seconds 600 --clients 200`. Exit code 1 if a law was broken."""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psutil
import psycopg

from ekiden.server.sealing.keys import new_key
from ekiden.stores.postgres import PostgresStore
from scripts.ports import free_port
from scripts.postgres import Postgres, running_postgres
from tests.soak.clients import CALL_SECONDS, Findings, Soaker
from tests.soak.judging import Verdict, judge_steps, quantile, steady_growth
from tests.soak.trouble import Trouble, write_keys

WORKERS = 3
PATIENCE = 60.0
_LOOK_SECONDS = 0.1
_SHOWN = 10
_SETTLE_SECONDS = 30.0
"""How long connections may stay open when their clients have left."""
_MORE_FILES = 20
"""Files and sockets that a worker may have more than at the beginning: those to the database come and go."""


@dataclass
class Plan:
    """How long, with how many clients, and from which seed."""

    seconds: float
    clients: int
    seed: int


@contextlib.contextmanager
def _served(folder: Path, store: str, keys_file: Path, port: int) -> Generator[psutil.Process, None, None]:
    """`ekiden run --workers 3`, as an operator starts it."""
    server = Path(__file__).with_name("server.py")
    options = [
        "--port",
        str(port),
        "--workers",
        str(WORKERS),
        "--store",
        store,
        "--keys-file",
        str(keys_file),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ekiden.cli", "run", str(server), *options, "--grace", "2"],
            env={**os.environ, "NOTES": str(folder / "notes")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()
                process.wait(PATIENCE)


async def _ready(port: int, supervisor: psutil.Process) -> None:
    async with asyncio.timeout(PATIENCE), httpx2.AsyncClient(trust_env=False) as client:
        while True:
            with contextlib.suppress(httpx2.TransportError):
                ready = await client.get(f"http://127.0.0.1:{port}/readyz")
                if ready.status_code == 200 and len(supervisor.children()) == WORKERS:
                    return
            await asyncio.sleep(_LOOK_SECONDS)


async def soak(plan: Plan, folder: Path, postgres: Postgres) -> bool:
    """Let everything happen; whether nothing was found."""
    chance, findings, verdict = random.Random(plan.seed), Findings(), Verdict()
    url, keys_file, keys, port = postgres.new_database(), folder / "keys", [new_key()], free_port()
    store = PostgresStore(url)
    await store.migrate()
    await store.close()
    write_keys(keys_file, keys)
    (folder / "notes").mkdir()
    with _served(folder, url, keys_file, port) as supervisor:
        await _ready(port, supervisor)
        spared = supervisor.children()[0]
        trouble = Trouble(supervisor, postgres, keys_file, keys, chance, spared.pid)
        files, samples = spared.num_fds(), list[float]()
        took = await _happen(plan, port, findings, trouble, spared, samples)
        await _settle(url, spared, files, verdict)
        processes = [supervisor, *supervisor.children(recursive=True)]
    verdict.leaked += [f"process {each.pid} is left over" for each in processes if each.is_running()]
    verdict.lost += findings.lost
    verdict.lost += _refused_states(folder / "log")
    verdict.foreign += findings.foreign
    steps = judge_steps(folder / "notes", findings, trouble, verdict)
    _report(plan, findings, trouble, verdict, steps, took, steady_growth(samples, verdict))
    return verdict.is_good


async def _happen(
    plan: Plan,
    port: int,
    findings: Findings,
    trouble: Trouble,
    spared: psutil.Process,
    samples: list[float],
) -> float:
    """All clients call, for as long as planned; how long it took until the last call had ended."""
    began, over, calm = time.monotonic(), asyncio.Event(), asyncio.Event()
    soakers = [
        Soaker(
            f"{'old' if number % 2 else 'new'}-{number}",
            f"http://127.0.0.1:{port}/mcp",
            bool(number % 2),
            findings,
            random.Random(plan.seed * 1000 + number),
            trouble.is_disturbed,
        )
        for number in range(plan.clients)
    ]
    async with asyncio.timeout(plan.seconds + 3 * CALL_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(trouble.happen(calm))
        calling = [group.create_task(each.soak(over)) for each in soakers]
        while time.monotonic() < began + plan.seconds:
            samples.append(spared.memory_info().rss / 1e6)
            await asyncio.sleep(1.0)
        calm.set()
        over.set()
        await asyncio.wait(calling)
    return time.monotonic() - began


async def _settle(url: str, spared: psutil.Process, files: int, verdict: Verdict) -> None:
    """Look for what was left behind, once everybody has had time to let go."""
    open_tasks = (
        "SELECT principal, state, losses, due - extract(epoch FROM now()), fence FROM ekiden_tasks"
        " WHERE state NOT IN ('completed', 'failed', 'cancelled') AND principal LIKE 'new-%'"
    )
    deadline = time.monotonic() + _SETTLE_SECONDS
    left: list[Any] = [None]
    more = 0
    while (left or more > _MORE_FILES) and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_SECONDS)
        with psycopg.connect(url) as connection:
            left = connection.execute(open_tasks).fetchall()
        more = spared.num_fds() - files
    verdict.leaked += [f"a task did not end (whose, state, losses, due in, fence): {row}" for row in left]
    if more > _MORE_FILES:
        verdict.leaked.append(f"a worker has {more} open files more than at the beginning")


def _refused_states(log: Path) -> list[str]:
    """States that were refused for their key. A rotation loses none."""
    words = "not sealed by a key of this ring"
    return [line for line in log.read_text(errors="replace").splitlines() if words in line]


def _report(
    plan: Plan,
    findings: Findings,
    trouble: Trouble,
    verdict: Verdict,
    steps: int,
    took: float,
    memory: tuple[float, float],
) -> None:
    seconds = [each for _, each in findings.seconds]
    lines = [
        f"{plan.clients} clients, {WORKERS} workers, Postgres; {took:.0f} s, seed {plan.seed}",
        f"calls {sum(findings.calls.values())}: {dict(sorted(findings.calls.items()))}; {steps} steps",
        f"trouble {dict(trouble.counts)}; felt by clients: rounds repeated {findings.repeated}",
        f"  calls of 2025 begun anew {findings.begun_anew}, clients connected again {findings.reconnected}",
        f"  steps begun again under their key {verdict.begun_again}",
        f"lost {len(verdict.lost)}, doubled {len(verdict.doubled)}, leaked {len(verdict.leaked)}",
        f"foreign data seen {len(verdict.foreign)} in {findings.snooped} attempts",
        f"memory of a worker {memory[0]:.0f} MB when warm, {memory[1]:.0f} MB at the end",
        f"p50 {quantile(seconds, 0.5) * 1000:.0f} ms, p99 {quantile(seconds, 0.99) * 1000:.0f} ms",
    ]
    print("\n".join(lines))
    for name in ("lost", "doubled", "leaked", "foreign", "grown"):
        for each in getattr(verdict, name)[:_SHOWN]:
            print(f"{name}: {each}")


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    for noisy in ("psycopg.pool", "ekiden.client"):  # What they would complain of is done on purpose here.
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    seed = random.randrange(10**6) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="ekiden-soak-"))
    with running_postgres() as postgres:
        assert urlsplit(postgres.server_url).hostname == "127.0.0.1"
        is_good = asyncio.run(soak(Plan(options.seconds, options.clients, seed), folder, postgres))
    if is_good:
        shutil.rmtree(folder)
    else:
        print(f"the notes and the log of the server are in {folder}")
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
