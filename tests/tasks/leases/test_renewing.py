"""When leases of tasks are renewed, and when a silent worker is replaced, in virtual time."""

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import Any

import pytest

from ekiden import Context, Server, StoreUnavailable, TaskLimits
from ekiden.stores.memory import MemoryStore
from ekiden.stores.memory.tasks import MemoryTasks
from ekiden.stores.sqlite.file import STALE_PART
from ekiden.tasks.leases.renewing import Asked, Leases
from ekiden.tasks.store import Held
from tests.tasks.driving import TaskClient, new_server

LIMITS = TaskLimits(lease_seconds=6.0, sweep_seconds=0.5, message_seconds=0.05, poll_seconds=0.01)
LEASE = LIMITS.lease_seconds


class LockedFile(MemoryTasks):
    """Rows as in a SQLite file: while somebody locks it, it can be read, and whoever writes tries again.

    Who waits already tries less often than who has just come, as SQLite does it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.locked_until = 0.0
        self.extended: list[float] = []

    async def _written(self) -> float:
        """How long that took."""
        began, pause = asyncio.get_running_loop().time(), 0.001
        while asyncio.get_running_loop().time() < self.locked_until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.1)
        return asyncio.get_running_loop().time() - began

    async def claim_all(self, task_ids: Any, *, now: float, lease: float) -> list[Held]:
        if await self._written() > lease * STALE_PART:
            raise StoreUnavailable("it was locked for so long")
        return await super().claim_all(task_ids, now=now, lease=lease)

    async def extend(self, held: Mapping[str, int], *, until: float) -> set[str]:
        if held:
            self.extended.append(asyncio.get_running_loop().time())
        await self._written()
        return await super().extend(held, until=until)


def deploy(store: MemoryStore, number: int, ran: list[int], go: asyncio.Event) -> Server:
    server = new_server(store, tasks=LIMITS)

    async def work() -> str:
        ran.append(number)
        await go.wait()
        return "done"

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        return await ctx.step(work, key="work")

    return server


@pytest.mark.parametrize("seconds", [5.5, 6.05, 6.3, 6.9, 7.01, 7.1, 7.5, 8.0, 8.4, 12.0])
async def test_a_worker_that_lives_keeps_its_task_however_long_the_file_was_locked(seconds: float) -> None:
    store, ran, go = MemoryStore(), list[int](), asyncio.Event()
    store.tasks = file = LockedFile()
    first, second = (deploy(store, number, ran, go) for number in (1, 2))
    async with first.running(), second.running():
        task_id = await TaskClient(first).start()
        while not ran:
            await asyncio.sleep(0.01)
        file.locked_until = asyncio.get_running_loop().time() + seconds
        await asyncio.sleep(seconds + 2 * LEASE)
        go.set()
        assert await TaskClient(second).text(task_id) == "done"
    assert len(ran) == 1


async def test_a_lease_that_was_renewed_late_is_renewed_again_at_once() -> None:
    store, ran, go = MemoryStore(), list[int](), asyncio.Event()
    store.tasks = file = LockedFile()
    server = deploy(store, 1, ran, go)
    async with server.running():
        task_id = await TaskClient(server).start()
        while not ran:
            await asyncio.sleep(0.01)
        file.extended.clear()
        unlocked = file.locked_until = asyncio.get_running_loop().time() + 2 * LEASE
        await asyncio.sleep(3 * LEASE)
        go.set()
        assert await TaskClient(server).text(task_id) == "done"
    assert min(asked for asked in file.extended if asked >= unlocked) < unlocked + 0.5


class Cancelling(MemoryTasks):
    """Cancels by itself what it is asked for, once, as a pool that is closed does."""

    method = ""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name == "method" or name != self.method:
            return found

        async def once(*arguments: Any, **keywords: Any) -> Any:
            if not self.method:
                return await found(*arguments, **keywords)
            self.method = ""
            raise asyncio.CancelledError

        return once


@pytest.mark.parametrize("method", ["due", "next_due", "extend", "append", "overdue", "forget"])
async def test_a_worker_goes_on_when_its_store_has_cancelled_what_it_was_asked_for(method: str) -> None:
    store, ran, go = MemoryStore(), list[int](), asyncio.Event()
    store.tasks = cancelling = Cancelling()
    server = deploy(store, 1, ran, go)
    async with server.running():
        cancelling.method = method
        task_ids = [await TaskClient(server).start() for _ in range(20)]
        await asyncio.sleep(LEASE)
        go.set()
        texts = [await TaskClient(server).text(task_id) for task_id in task_ids]
        await asyncio.sleep(LEASE)
        assert not cancelling.method
        runner = server._rounds.tasks.runner  # type: ignore[union-attr]
        assert not any(loop.done() for loop in runner._loops)
    assert texts == ["done"] * 20
    assert len(ran) == 20


@pytest.mark.parametrize(
    ("problem", "level"), [(StoreUnavailable("away"), "WARNING"), (RuntimeError("wrong"), "ERROR")]
)
async def test_an_outage_is_told_at_once_and_then_ever_more_rarely_while_it_is_tried_often(
    problem: Exception, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    tried = list[tuple[float, int]]()
    good = {1, 12}

    class Away(MemoryTasks):
        async def extend(self, held: Mapping[str, int], *, until: float) -> set[str]:
            tried.append((asyncio.get_running_loop().time(), len(caplog.records)))
            if len(tried) not in good:
                raise problem
            return set(held)

    class Mine:
        id, fence = "t", 1
        asked = Asked(0.0, 0.0)

        def look_soon(self) -> None:
            """It has no need to."""

    leases = Leases(Away(), {"t": Mine()}, time.time, LEASE)  # type: ignore[dict-item]
    renewing = asyncio.create_task(leases.keep_renewing())
    async with asyncio.timeout(10 * LEASE):
        while len(tried) < 15:
            await asyncio.sleep(0.1)
    renewing.cancel()
    told = [after - before for (_, before), (_, after) in itertools.pairwise(tried)]
    assert told == [0, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1]
    pauses = [after - before for (before, _), (after, _) in itertools.pairwise(tried)]
    assert [pause > LEASE / 6 for pause in pauses] == [number in good for number in range(1, 15)]
    kinds = {(record.levelname, bool(record.exc_info)) for record in caplog.records}
    assert kinds == {(level, level == "ERROR")}, "where our own code is wrong, the line says where"
