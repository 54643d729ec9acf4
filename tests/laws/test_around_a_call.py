"""What is around a call, or comes with it, breaks no law either: middleware, arguments, locked files."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from ekiden import Context, RoundLimits, Server
from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing import CallFailed
from tests.laws.driving import Client, accept, serve, soon

BRIEF = 0.05


class Charging:
    """A step that takes its time, and what became of it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.noted: list[str] = []

    async def charge(self) -> str:
        self.noted.append("begins")
        await asyncio.sleep(self.seconds)
        self.noted.append("ends")
        return "charged"


def paying(work: Charging, **options: Any) -> Server:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("pay?", bool, key="k")
        return await ctx.step(work.charge, key="charge")

    return serve(tool, **options)


async def with_anyio(call_next: Any, request: Any) -> Any:
    with anyio.fail_after(BRIEF):
        return await call_next(request)


async def with_two_timeouts(call_next: Any, request: Any) -> Any:
    async with asyncio.timeout(BRIEF * 1.5), asyncio.timeout(BRIEF):
        return await call_next(request)


@pytest.mark.parametrize("limit", [with_anyio, with_two_timeouts])
@pytest.mark.parametrize("stored", [False, True])
async def test_a_time_limit_around_a_call_does_not_begin_its_step_again(
    limit: Any, stored: bool, tmp_path: Path
) -> None:
    work = Charging(4 * BRIEF)
    server = paying(work, store=f"sqlite:///{tmp_path}/rounds.db" if stored else None)

    @server.middleware
    async def limited(request: Any, call_next: Any) -> Any:
        return await limit(call_next, request)

    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        async with asyncio.timeout(30):
            tries = 0
            while tries < 3 or not work.noted:  # On a busy machine, no step may begin in so short a time.
                tries += 1
                with contextlib.suppress(Exception):
                    await client.retry(first, {"k": accept(True)})
            while work.noted[-1:] != ["ends"]:
                await asyncio.sleep(0.01)
    assert work.noted == ["begins", "ends"]


@pytest.mark.parametrize("once", ["auto", True])
async def test_arguments_that_nobody_can_copy_are_no_hindrance(once: Any, tmp_path: Path) -> None:
    async def tool(numbers: Iterable[int], ctx: Context) -> str:
        await ctx.elicit("add?", bool, key="k")
        return str(sum(numbers))

    server = serve(tool, once=once, store=f"sqlite:///{tmp_path}/rounds.db")
    async with server.running():
        client = Client(server)
        first = await client.ask("tool", {"numbers": [1, 2]})
        ended = await client.retry(first, {"k": accept(True)}, arguments={"numbers": [1, 2]})
        assert ended.result["content"][0]["text"] == "3"


@pytest.mark.real_time
async def test_a_file_that_is_locked_for_longer_than_a_lease_costs_no_second_begin(tmp_path: Path) -> None:
    path = tmp_path / "rounds.db"
    work = Charging(3.0)
    stores = [SQLiteStore(path, busy_seconds=0.2) for _ in range(2)]
    one, other = (
        Client(paying(work, store=store, rounds=RoundLimits(lease_seconds=0.6))) for store in stores
    )
    one.patience = other.patience = 20.0
    first = await one.ask("tool")
    running = asyncio.create_task(one.retry(first, {"k": accept(True)}))
    while not work.noted:
        await asyncio.sleep(0.01)
    repeat = asyncio.create_task(other.retry(first, {"k": accept(True)}))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(1.5)
        lock.execute("ROLLBACK")
    assert (await soon(running, 15.0)).result["content"][0]["text"] == "charged"
    with contextlib.suppress(CallFailed):  # Who waits for another owner may be told to come back later.
        await soon(repeat, 15.0)
    again = await other.retry(first, {"k": accept(True)})
    assert again.result["content"][0]["text"] == "charged"
    assert work.noted == ["begins", "ends"]
    for store in stores:
        await store.close()
